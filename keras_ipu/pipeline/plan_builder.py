"""Builds the `StagePlan` of a model from its graph and stage assignment."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras

from keras_ipu.pipeline.graph import UNSET, ModelKind, graph_of, kind_of
from keras_ipu.pipeline.stage_plan import LayerCall, StagePlan, carried_values, entry_tensors, in_order_of_inputs
from keras_ipu.stock.graphs import get_mask, graph_nodes, graph_structures, set_mask, symbolic_arguments

_TRAINING = "training"


def build_plan(model: Any, assignments: Sequence[Any], contiguous: bool = True) -> StagePlan:
    """Builds the `StagePlan` of a model with a graph, for assignments that fit the graph.

    Args:
        model: the model.
        assignments: of its layers.
        contiguous: whether every stage up to the last needs a layer.

    Raises:
        ValueError: if a call depends on a later stage.
        RuntimeError: if a stage has no layer.
    """
    numbers = itertools.count()
    symbolic_inputs, _ = graph_structures(graph_of(model))
    inputs = [next(numbers) for _ in keras.tree.flatten(symbolic_inputs)]
    calls, outputs = _expand(model, assignments, inputs, numbers, None, None)
    ordered = sorted(calls, key=lambda call: call.stage)  # stable: the order within a stage stays
    check_order(ordered, inputs)
    stages = _stage_count(ordered, contiguous)
    return StagePlan(model, stages, tuple(ordered), carried_values(ordered, stages, inputs, outputs))


def check_order(calls: Sequence[LayerCall], inputs: Sequence[int]) -> None:
    """Checks that every call's inputs are computed in its stage or an earlier one.

    Raises:
        ValueError: if one comes from a later stage.
    """
    known = set(inputs)
    for call in calls:
        if not known.issuperset(call.inputs.values()):
            raise ValueError(
                f"Layer {call.layer.name} in pipeline stage {call.stage} has a dependency from a pipeline stage which "
                "has not yet been executed. Layers can only use outputs from current or previous pipeline stages."
            )
        known.update(call.outputs)


def _stage_count(calls: Sequence[LayerCall], contiguous: bool) -> int:
    used = {call.stage for call in calls}
    highest = max(used)
    missing = sorted(set(range(highest + 1)) - used)
    if missing and contiguous:
        raise RuntimeError(
            "All stages in a pipeline must have at lease one layer assigned to them. The highest stage with an "
            f"assignment is stage {highest}, however the preceeding stages {missing} had no assignments."
        )
    return highest + 1


def _expand(
    model: Any,
    assignments: Sequence[Any],
    inputs: Sequence[int],
    numbers: Iterator[int],
    forced: bool | None,
    default: bool | None,
) -> tuple[list[LayerCall], list[int]]:
    """Expands a model into its layer calls, inner models included; returns them and the numbers of its outputs."""
    graph = graph_of(model)
    symbolic_inputs, symbolic_outputs = graph_structures(graph)
    named = dict(zip(map(id, keras.tree.flatten(symbolic_inputs)), inputs, strict=True))
    calls: list[LayerCall] = []
    training = _training_of(kind_of(model))
    for assignment, node in zip(assignments, graph_nodes(graph), strict=True):
        node_forced, node_default = training(node, forced, default)
        taken = {id(tensor): named[id(tensor)] for tensor in node.input_tensors}
        if assignment.is_nested_model:
            more, given = _expand_inner(node, assignment, taken, numbers, node_forced, node_default)
            calls += more
        else:
            given = [next(numbers) for _ in node.outputs]
            stage = assignment.pipeline_stage
            trained = (node_forced, node_default)
            calls.append(LayerCall(node.operation, node.arguments, stage, taken, tuple(given), *trained))
        named.update(zip(map(id, node.outputs), given, strict=True))
    return calls, [named[id(tensor)] for tensor in keras.tree.flatten(symbolic_outputs)]


def _expand_inner(
    node: Any,
    assignment: Any,
    taken: dict[int, int],
    numbers: Iterator[int],
    forced: bool | None,
    default: bool | None,
) -> tuple[list[LayerCall], list[int]]:
    """Expands a call of an inner model, with the preprocessing of its inputs where there is some."""
    argument, mask = in_order_of_inputs(node.operation, _first_argument(node)), _mask_argument(node)
    inner = [taken[id(tensor)] for tensor in keras.tree.flatten(argument)]
    unchanged = mask is None and _fits(node.operation, argument)
    fed = inner if unchanged else [next(numbers) for _ in inner]
    calls, given = _expand(node.operation, assignment.pipeline_stage_assignments, fed, numbers, forced, default)
    if unchanged:
        return calls, given
    entry, arguments = _InputPreprocessing(node.operation), symbolic_arguments(argument, mask)
    first = min(call.stage for call in calls)
    return [LayerCall(entry, arguments, first, taken, tuple(fed), None, None), *calls], given


def _first_argument(node: Any) -> Any:
    """The symbolic tensors that an inner model is called with, in their structure."""
    arguments = node.arguments
    return arguments.args[0] if arguments.args else next(iter(arguments.kwargs.values()))


def _mask_argument(node: Any) -> Any:
    """The mask that an inner model is given explicitly, for each of its inputs; None if there is none.

    Raises:
        ValueError: if an inner model is given tensors that its graph has no place for.
    """
    arguments = node.arguments
    mask = arguments.args[2] if len(arguments.args) > 2 else arguments.kwargs.get("mask")
    known = {id(tensor) for tensor in keras.tree.flatten([_first_argument(node), mask])}
    has_graph_with_masks = kind_of(node.operation) is not ModelKind.SUBCLASSED
    if any(id(tensor) not in known for tensor in node.input_tensors) or (mask is not None and not has_graph_with_masks):
        raise ValueError(
            f"A model in a pipelined model takes its inputs as one argument, and a Functional or Sequential one a mask "
            f"as well. Received: a call of {node.operation.name} with further tensors. Pass them among its inputs."
        )
    return mask


def _fits(model: Any, argument: Any) -> bool:
    """Returns whether a model's call passes these tensors to its layers unchanged."""
    wanted = keras.tree.flatten(graph_structures(graph_of(model))[0])
    given = keras.tree.flatten(argument)
    return all(a.dtype == b.dtype and len(a.shape) == len(b.shape) for a, b in zip(wanted, given, strict=True))


@dataclasses.dataclass(frozen=True)
class _InputPreprocessing:
    """Preprocessing of inputs that a model's call does before its layers. Their masks stay with them."""

    model: Any

    @property
    def name(self) -> str:
        """The model's name."""
        return str(self.model.name)

    def __call__(self, x: Any, mask: Any = None) -> list[Any]:
        masks = [get_mask(each) for each in keras.tree.flatten(x)] if mask is None else keras.tree.flatten(mask)
        tensors = entry_tensors(self.model, x)
        for tensor, own in zip(tensors, masks, strict=False):  # Keras takes fewer masks than inputs
            if own is not None:
                set_mask(tensor, own)
        return tensors


def is_layer_call(call: LayerCall) -> bool:
    """Returns whether a call is that of a layer, not an inner model's preprocessing of its inputs."""
    return not isinstance(call.layer, _InputPreprocessing)


def _training_of(kind: ModelKind) -> Callable[[Any, bool | None, bool | None], tuple[bool | None, bool | None]]:
    """Combines a call's own `training` argument with that of the model around it."""

    def functional(node: Any, forced: bool | None, default: bool | None) -> tuple[bool | None, bool | None]:
        # A functional model passes its own `training` to every layer, whatever was recorded.
        own = _own_training(node)
        return forced, default if own is None else own

    def subclassed(node: Any, forced: bool | None, default: bool | None) -> tuple[bool | None, bool | None]:
        # An argument that its `call` passes explicitly is kept.
        own = _own_training(node)
        return forced if own is None else own, default

    return subclassed if kind is ModelKind.SUBCLASSED else functional


def _own_training(node: Any) -> bool | None:
    """Returns the `training` argument that was recorded for a call; None if it is the model's, whichever that is."""
    own = node.arguments.kwargs.get(_TRAINING)
    return None if own is UNSET else own
