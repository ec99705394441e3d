"""Checks pipeline stage assignments: once where they enter (`check_given`), and against the graph that runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipu_tf._arguments.counts import as_integer
from keras_ipu.pipeline import stage_assignment
from keras_ipu.pipeline.graph import ModelKind, graph_of, kind_of, node_index, post_order
from keras_ipu.pipeline.plan_builder import build_plan
from keras_ipu.stock.graphs import calls_of, sequential_graph
from keras_ipu.stock.ownership import is_ipu_model

_LAYER: dict[ModelKind, type] = {
    ModelKind.FUNCTIONAL: stage_assignment.FunctionalLayerPipelineStageAssignment,
    ModelKind.SEQUENTIAL: stage_assignment.SequentialLayerPipelineStageAssignment,
    ModelKind.SUBCLASSED: stage_assignment.ModelLayerPipelineStageAssignment,
}
_NESTED: dict[ModelKind, type] = {
    ModelKind.FUNCTIONAL: stage_assignment.FunctionalNestedModelPipelineStageAssignment,
    ModelKind.SEQUENTIAL: stage_assignment.SequentialNestedModelPipelineStageAssignment,
    ModelKind.SUBCLASSED: stage_assignment.NestedModelPipelineStageAssignment,
}


def make_assignment(model: Any, layer: Any, node: Any, stage: int | None, nested: Sequence[Any] | None) -> Any:
    """Makes a stage assignment of the class for the model's kind.

    Args:
        model: the model.
        layer: the layer, or the inner model.
        node: its call; None for a layer of a `Sequential`.
        stage: the layer's stage.
        nested: the assignments of an inner model's layers; None for a layer.
    """
    kind = kind_of(model)
    place = () if kind is ModelKind.SEQUENTIAL else (node_index(node),)
    if nested is not None:
        return _NESTED[kind](layer, *place, nested)
    return _LAYER[kind](layer, *place, stage)


def check_given(model: Any, assignments: Any) -> None:
    """Checks assignments that a model is given. In those of a `Sequential`, integers are replaced by assignments.

    Raises:
        ValueError: if they do not fit the model's layers, or a call depends on a later stage.
        RuntimeError: for a subclassed model that is not built.
    """
    if kind_of(model) is ModelKind.SEQUENTIAL:
        _check_sequential(model, assignments)
    elif graph_of(model) is None:
        raise RuntimeError(
            f"Cannot set pipeline stage assignments for model `{model.name}` which has not been built yet. "
            "Please call `model.build()` first, or assign pipeline stages in your graph definition using "
            "PipelineStage scopes."
        )
    else:
        check_assignments(model, assignments)


def check_assignments(model: Any, assignments: Any) -> None:
    """Checks assignments of a model that has a graph.

    Raises:
        ValueError: if they do not fit the graph, or a call depends on a later stage.
    """
    _check_graph(model, assignments)
    build_plan(model, assignments, contiguous=False)


def _check_sequential(model: Any, assignments: Any) -> None:
    check_length(assignments, len(model.layers))
    for place, each in enumerate(assignments):
        if as_integer(each) is not None:
            assignments[place] = stage_assignment.SequentialLayerPipelineStageAssignment(model.layers[place], each)
    if not all(isinstance(each, (_LAYER[ModelKind.SEQUENTIAL], _NESTED[ModelKind.SEQUENTIAL])) for each in assignments):
        raise ValueError(
            "All elements of `pipeline_stage_assignment` must be instances of "
            "`SequentialLayerPipelineStageAssignment` for layers or `SequentialNestedModelPipelineStageAssignment` "
            "for nested models."
        )
    if not any(is_ipu_model(layer) for layer in model.layers):
        _check_sequential_layers(model, assignments)
    elif sequential_graph(model) is not None:
        check_assignments(model, assignments)


def check_length(assignments: Any, wanted: int) -> None:
    """Checks the length of a list of assignments.

    Raises:
        ValueError: unless it is a list of the wanted length.
    """
    if not isinstance(assignments, list):
        raise ValueError("`pipeline_stage_assignment` needs to be a list.")
    if len(assignments) != wanted:
        raise ValueError(
            f"The length of the provided `pipeline_stage_assignment` ({len(assignments)}) does not match the number "
            f"of layers in the graph ({wanted}). Each layer needs to be assigned a pipeline stage (excluding input "
            "layers)."
        )


def _check_graph(model: Any, assignments: Any) -> None:
    """Checks assignments against a model's graph, those of inner models too.

    Raises:
        ValueError: if they do not fit it, or a layer has no stage.
    """
    kind, nodes = kind_of(model), post_order(model)
    check_length(assignments, len(nodes))
    for assignment, node in zip(assignments, nodes, strict=True):
        if is_ipu_model(node.operation):
            _check_class(model, assignment, node.operation, _NESTED[kind], "nested model")
            _check_same(assignment.nested_model, node.operation)
            _check_graph(node.operation, assignment.pipeline_stage_assignments)
        else:
            _check_class(model, assignment, node.operation, _LAYER[kind], "layer")
            _check_same(assignment.layer, node.operation)
            _check_call(assignment, node)


def _check_sequential_layers(model: Any, assignments: Any) -> None:
    """Checks assignments of a `Sequential` without inner models, which may not be built.

    Raises:
        ValueError: unless they are of its layers, and stages start at 0 and go up by at most one.
    """
    previous = 0
    for place, (assignment, layer) in enumerate(zip(assignments, model.layers, strict=True)):
        stage = assignment.pipeline_stage
        if stage is None:
            raise ValueError(f"Layer {assignment.layer.name} has not been assigned a pipeline stage.")
        if assignment.layer is not layer:
            raise ValueError(
                f"The provided assignment at index {place} `pipeline_stage_assignment` is for layer "
                f"{assignment.layer.name}, but the layer in the Sequential model at index {place} is {layer.name}."
            )
        if place == 0 and stage != 0:
            raise ValueError(
                "The first layer in a pipelined sequential model needs to be assigned to the 0th pipeline stage, "
                f"however it was assigned to {stage}."
            )
        if stage not in (previous, previous + 1):
            raise ValueError(
                f"Layer {layer.name} has been assigned to pipeline stage {stage}, however the previous layer in the "
                f"Sequential model was assigned to pipeline stage {previous}. A layer in a Sequential model can only "
                "be assigned to the same pipeline stage as the previous layer or to the next pipeline stage."
            )
        previous = stage


def _check_class(model: Any, assignment: Any, layer: Any, wanted: type, what: str) -> None:
    if not isinstance(assignment, wanted):
        raise ValueError(
            f"The pipeline stage assignment for {what} {layer.name} in {model.name} must be an instance of "
            f"`{wanted.__name__}`. Instead the assignment was of type {type(assignment).__name__}."
        )


def _check_same(given: Any, wanted: Any) -> None:
    if given is not wanted:
        raise ValueError(
            "The order of `pipeline_stage_assignment` does not match the post-order generated from the graph "
            f"({given.name} != {wanted.name})."
        )


def _check_call(assignment: Any, node: Any) -> None:
    layer = node.operation
    index = getattr(assignment, "node_index", None)
    if assignment.pipeline_stage is None:
        which = "" if index is None else f" with node_index {index}"
        raise ValueError(
            f"Layer {layer.name}{which} has not been assigned a pipeline stage in `pipeline_stage_assignment`."
        )
    if index is None:
        return
    calls = calls_of(layer)
    if not 0 <= index < len(calls):
        raise ValueError(
            f"Layer {layer.name} has {len(calls)} invocation(s) in the graph, but `pipeline_stage_assignment` "
            f"contains an assignment for node_index {index}."
        )
    if calls[index] is not node:
        raise ValueError(
            "The order of `pipeline_stage_assignment` does not match the post-order generated from the graph "
            f"(mismatched nodes of layer {layer.name})."
        )
