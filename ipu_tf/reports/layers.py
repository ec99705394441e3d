"""`layer_costs`: operations, FLOPs and bytes of each layer, forward and backward, by the names of operations."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator

from ipu_tf.reports.part import Category, Operation, Part

_TRANSFORMED = re.compile(r"(jvp|vmap|transpose|remat|checkpoint)\(|\)")
_NUMBERED = re.compile(r"_\d+$")
_GRADIENTS = "gradient_tape/"
_MOST_SCOPES = 2
_WITHOUT_NAME = "(no layer)"


@dataclasses.dataclass(frozen=True)
class LayerCost:
    """What one layer computes in one run of a part, or in one iteration of its loop.

    Attributes:
        name: of the layer, with the models around it; of other operations their first two scopes.
        operations: how many operations it has, those of loops' bodies not counted.
        forward_flops: floating-point operations outside of gradients.
        backward_flops: those of gradients.
        bytes_accessed: bytes of the values that its operations read and make.
    """

    name: str
    operations: int = 0
    forward_flops: float = 0.0
    backward_flops: float = 0.0
    bytes_accessed: int = 0

    @property
    def flops(self) -> float:
        """All floating-point operations."""
        return self.forward_flops + self.backward_flops


@dataclasses.dataclass(frozen=True)
class KnownNames:
    """Names that the values of a part give.

    Attributes:
        layers: layers with weights, without the models around them.
        models: the outermost models of these layers.
        optimizers: optimizers with variables.
        exact: whether scopes are named as their layers are, without the number that TensorFlow gives a scope that
            comes again.
    """

    layers: frozenset[str] = frozenset()
    models: frozenset[str] = frozenset()
    optimizers: frozenset[str] = frozenset()
    exact: bool = False


def layer_costs(part: Part) -> tuple[LayerCost, ...]:
    """Returns the costs of a part's layers, in the order in which they first run. They add up to those of the part."""
    known = _known_names(part)
    costs: dict[str, LayerCost] = {}
    for operation in part.operations:
        name = layer_of(operation.name, known)
        costs[name] = _plus(costs.get(name, LayerCost(name)), operation)
    return tuple(costs.values())


def layer_of(operation: str, known: KnownNames | None = None) -> str:
    """Returns the layer of an operation by its name: up to the innermost layer that is known, else two scopes.

    Args:
        operation: its name, from TensorFlow or JAX.
        known: names of layers, models and optimizers. Of an optimizer's operations the layer is the optimizer.

    Example:
        >>> layer_of("gradient_tape/model_1/block/dense_1/MatMul/dot_general", KnownNames(frozenset({"dense"})))
        'model/block/dense'
        >>> layer_of("transpose(jvp(block))/dense/dot_general", KnownNames(frozenset({"dense"})))
        'block/dense'
    """
    known = known or KnownNames()
    scopes = [_known_name(scope, known) for scope in _scopes(operation)]
    if scopes and _plain(scopes[0]) in known.optimizers:
        return _plain(scopes[0])
    last = max((place for place, scope in enumerate(scopes) if scope in known.layers), default=None)
    if last is None:
        return "/".join(_first_scopes(scopes, known)) or _WITHOUT_NAME
    return "/".join([*(scopes[:last] if known.exact else map(_plain, scopes[:last])), scopes[last]])


def _first_scopes(scopes: list[str], known: KnownNames) -> Iterable[str]:
    """Returns the model and the layer of an operation of a layer without weights."""
    # Names of TensorFlow's ops begin with a capital, those of layers do not.
    first = list(itertools.takewhile(lambda scope: not scope[:1].isupper(), scopes[:_MOST_SCOPES]))
    numbered = bool(first) and first[0] not in known.models and _plain(first[0]) in known.models
    return map(_plain, first) if numbered else first  # a model that is called again calls its layers again


def is_backward(operation: str) -> bool:
    """Returns whether an operation belongs to gradients, by its name."""
    return operation.startswith(_GRADIENTS) or "transpose(" in operation


def _scopes(operation: str) -> list[str]:
    return _TRANSFORMED.sub("", operation.removeprefix(_GRADIENTS)).split("/")[:-1]


def _names(operations: Iterable[Operation]) -> Iterator[str]:
    """Yields the names of operations and of those in their bodies."""
    for operation in operations:
        yield operation.name
        yield from _names(operation.body)


def _known_name(scope: str, known: KnownNames) -> str:
    """Returns the layer that a scope is of; the scope itself where none is known."""
    plain = _plain(scope)
    return plain if plain in known.layers and not (known.exact and scope in known.layers) else scope


def _plain(scope: str) -> str:
    """Returns a scope's name without the number that TensorFlow gives it when it comes again."""
    return _NUMBERED.sub("", scope)


def _known_names(part: Part) -> KnownNames:
    weights = [path for path in _paths(part, Category.WEIGHTS) if len(path) > 1]
    layers = frozenset(path[-2] for path in weights)  # a weight `model/dense/kernel` is of `dense`
    models = frozenset(path[0] for path in weights if len(path) > 2)
    optimizers = frozenset(path[0] for path in _paths(part, Category.OPTIMIZER) if len(path) > 1)
    # TensorFlow numbers scopes that come again, JAX does not: where all names are there, their numbers are their own.
    exact = layers <= {scope for name in _names(part.operations) for scope in _scopes(name)}
    return KnownNames(layers, models, optimizers - models, exact)


def _paths(part: Part, category: Category) -> Iterator[list[str]]:
    """Yields the names, by scopes, of the variables of a category."""
    return (value.name.split("/") for value in part.values if value.category is category and value.first == 0)


def _plus(cost: LayerCost, operation: Operation) -> LayerCost:
    backward = is_backward(operation.name)
    return LayerCost(
        cost.name,
        cost.operations + 1,
        cost.forward_flops + (0.0 if backward else operation.flops),
        cost.backward_flops + (operation.flops if backward else 0.0),
        cost.bytes_accessed + operation.bytes_accessed,
    )
