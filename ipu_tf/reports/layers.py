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


def layer_costs(part: Part) -> tuple[LayerCost, ...]:
    """Returns the costs of a part's layers, in the order in which they first run. They add up to those of the part."""
    known = _layers_with_variables(part)
    # TensorFlow numbers scopes that come again, JAX does not: where all names are there, their numbers are their own.
    exact = known <= {scope for name in _names(part.operations) for scope in _scopes(name)}
    costs: dict[str, LayerCost] = {}
    for operation in part.operations:
        name = layer_of(operation.name, known, exact)
        costs[name] = _plus(costs.get(name, LayerCost(name)), operation)
    return tuple(costs.values())


def layer_of(operation: str, known: Iterable[str] = (), exact: bool = False) -> str:
    """Returns the layer of an operation by its name: up to the innermost layer that is known, else two scopes.

    Args:
        operation: its name, from TensorFlow or JAX.
        known: names of layers, without those of models around them.
        exact: whether scopes are named as their layers are, without the number that TensorFlow gives a scope that
            comes again.

    Example:
        >>> layer_of("gradient_tape/model_1/block/dense_1/MatMul/dot_general", {"dense"})
        'model/block/dense'
        >>> layer_of("transpose(jvp(block))/dense/dot_general", {"dense"})
        'block/dense'
    """
    scopes = [_known_name(scope, known, exact) for scope in _scopes(operation)]
    last = max((place for place, scope in enumerate(scopes) if scope in known), default=None)
    if last is None:  # names of TensorFlow's ops begin with a capital, those of layers do not
        chosen = list(itertools.takewhile(lambda scope: not scope[:1].isupper(), scopes[:_MOST_SCOPES]))
    else:
        chosen = [*(scopes[:last] if exact else map(_plain, scopes[:last])), scopes[last]]
    return "/".join(chosen) or _WITHOUT_NAME


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


def _known_name(scope: str, known: Iterable[str], exact: bool) -> str:
    """Returns the layer that a scope is of; the scope itself where none is known."""
    plain = _plain(scope)
    return plain if plain in known and not (exact and scope in known) else scope


def _plain(scope: str) -> str:
    """Returns a scope's name without the number that TensorFlow gives it when it comes again."""
    return _NUMBERED.sub("", scope)


def _layers_with_variables(part: Part) -> frozenset[str]:
    return frozenset(_owners(part))


def _owners(part: Part) -> Iterator[str]:
    """Yields the layers that have weights: a weight `model/dense/kernel` is of `dense`."""
    for value in part.values:
        if value.category is Category.WEIGHTS and value.first == 0 and value.name.count("/"):
            yield value.name.split("/")[-2]


def _plus(cost: LayerCost, operation: Operation) -> LayerCost:
    backward = is_backward(operation.name)
    return LayerCost(
        cost.name,
        cost.operations + 1,
        cost.forward_flops + (0.0 if backward else operation.flops),
        cost.backward_flops + (operation.flops if backward else 0.0),
        cost.bytes_accessed + operation.bytes_accessed,
    )
