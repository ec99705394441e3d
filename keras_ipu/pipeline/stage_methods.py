"""Methods of IPU models: `get_`, `set_` and `reset_pipeline_stage_assignment`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_ipu.options.model_state import reset_functions, state_of, update_state
from keras_ipu.pipeline import assignment_checks as assignment_rules
from keras_ipu.pipeline.graph import ModelKind, graph_of, kind_of, post_order
from keras_ipu.pipeline.plan_builder import build_plan
from keras_ipu.pipeline.saved_stages import fill_in_stages
from keras_ipu.pipeline.stage_assignment import SequentialLayerPipelineStageAssignment as _SequentialLayer
from keras_ipu.pipeline.stage_assignment import SequentialNestedModelPipelineStageAssignment as _AnyNested
from keras_ipu.pipeline.stage_scopes import stage_of_node
from keras_ipu.pipeline.stage_summary import print_summary
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock.ownership import is_ipu_model

_log = logging.getLogger("ipu_tf")


class StageMethods:
    """Methods that every model made in the scope of an `IPUStrategy` has."""

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """The pipeline stage assignments of the model's layers in the order in which they run, input layers left out.

        Returns:
            A new list of assignments: those that were set, by `set_pipeline_stage_assignment` or by `PipelineStage`
            scopes, else one without a stage for each call of a layer and each call of an inner model.

        Raises:
            RuntimeError: for a subclassed model that is not built.
        """
        assignments = assigned(self)
        if not assignments:
            return default_assignments(self)
        if kind_of(self) is ModelKind.SEQUENTIAL and not state_of(self).assignment_valid:
            _log.info(
                "Calling `get_pipeline_stage_assignment()` on a model which has had layers added/removed since the "
                "last `set_pipeline_stage_assignment()` call which means that the current assignment is not valid."
            )
        return list(assignments)

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list[Any]) -> None:
        """Assigns every layer of the model to a pipeline stage: fit, evaluate and predict then run as a pipeline.

        Calling the model itself is not affected.

        Args:
            pipeline_stage_assignment: what `get_pipeline_stage_assignment` gave, with the stages filled in. For a
                `Sequential` also a list of the layers' stages, whose integers become assignments.

        Raises:
            ValueError: if it does not fit the model's layers, or a call depends on a later stage.
            RuntimeError: for a subclassed model that is not built.
        """
        if kind_of(self) is ModelKind.SEQUENTIAL:
            _check_sequential(self, pipeline_stage_assignment)
        elif graph_of(self) is None:
            raise RuntimeError(
                f"Cannot set pipeline stage assignments for model `{model_name(self)}` which has not been built yet. "
                "Please call `model.build()` first, or assign pipeline stages in your graph definition using "
                "PipelineStage scopes."
            )
        else:
            check_assignments(self, pipeline_stage_assignment)
        update_state(self, assignment=tuple(pipeline_stage_assignment), assignment_valid=True, saved_stages=None)
        reset_functions(self)

    def reset_pipeline_stage_assignment(self) -> None:
        """Clears the pipeline stages of all layers: the model is no longer pipelined."""
        update_state(self, assignment=(), assignment_valid=False, saved_stages=None)
        reset_functions(self)

    def print_pipeline_stage_assignment_summary(
        self, line_length: int | None = None, print_fn: Callable[[str], Any] | None = None
    ) -> None:
        """Prints a table of the pipeline stage assignments.

        Args:
            line_length: characters in a line; 89, or 60 for a `Sequential`.
            print_fn: takes each line; `print` if None.
        """
        kind = kind_of(self)
        print_summary(model_name(self), kind, self.get_pipeline_stage_assignment(), line_length, print_fn or print)


def default_assignments(model: Any) -> list[Any]:
    """Returns assignments of a model's layer calls, without stages except those set on inner models.

    Raises:
        RuntimeError: if the model is not built.
    """
    if kind_of(model) is ModelKind.SEQUENTIAL:
        return [_assignment(model, layer, None, None) for layer in model.layers]
    if graph_of(model) is None:
        raise RuntimeError(
            f"Cannot get pipeline stage assignments for model `{model.name}` which has not been built yet. Please "
            "call `model.build()` first."
        )
    return [_assignment(model, node.operation, node, None) for node in post_order(model)]


def assigned(model: Any) -> tuple[Any, ...]:
    """The assignments that were set for a model; empty if it is not pipelined."""
    state = state_of(model)
    if state.saved_stages is not None and (kind_of(model) is ModelKind.SEQUENTIAL or graph_of(model) is not None):
        filled = fill_in_stages(default_assignments(model), state.saved_stages)
        update_state(model, assignment=tuple(filled), assignment_valid=state.assignment_valid, saved_stages=None)
    if state.graph is not None and not state.scopes_read:
        assign_from_scopes(model)
    return state_of(model).assignment


def assign_from_scopes(model: Any) -> None:
    """Assigns a model's layers to the stages of their `PipelineStage` scopes, if there are any.

    What was set before stays.

    Raises:
        ValueError: if only some of the layers have a stage.
    """
    update_state(model, scopes_read=True)
    if state_of(model).assignment or state_of(model).saved_stages:
        return
    nodes = post_order(model)
    if all(stage_of_node(node) is None for node in nodes):
        return
    assignments = [_assignment(model, node.operation, node, _scope_stage(node)) for node in nodes]
    check_assignments(model, assignments)
    update_state(model, assignment=tuple(assignments), assignment_valid=True)
    reset_functions(model)


def check_assignments(model: Any, assignments: Any) -> None:
    """Checks assignments of a model that has a graph.

    Raises:
        ValueError: if they do not fit the graph, or a call depends on a later stage.
    """
    assignment_rules.check_graph_assignment(model, assignments, is_ipu_model)
    build_plan(model, assignments, contiguous=False)


def _assignment(model: Any, layer: Any, node: Any, stage: int | None) -> Any:
    nested = layer.get_pipeline_stage_assignment() if is_ipu_model(layer) else None
    return assignment_rules.make_assignment(model, layer, node, stage, nested)


def _scope_stage(node: Any) -> int | None:
    stage = stage_of_node(node)
    if stage is None and not is_ipu_model(node.operation):
        raise ValueError(
            f"All layers of a pipelined model must have an associated pipeline stage. However, {node.operation.name} "
            "has not been assigned to one. Pipeline stages can be assigned when a layer is constructed, or each time "
            "a layer is called. Different pipeline stages can assigned to each call."
        )
    return stage


def _check_sequential(model: Any, assignments: Any) -> None:
    assignment_rules.check_length(assignments, len(model.layers))
    for place, each in enumerate(assignments):
        if isinstance(each, int):
            assignments[place] = _SequentialLayer(model.layers[place], each)
    if not all(isinstance(each, (_SequentialLayer, _AnyNested)) for each in assignments):
        raise ValueError(
            "All elements of `pipeline_stage_assignment` must be instances of "
            "`SequentialLayerPipelineStageAssignment` for layers or `SequentialNestedModelPipelineStageAssignment` "
            "for nested models."
        )
    if not any(is_ipu_model(layer) for layer in model.layers):
        assignment_rules.check_sequential_layers(model, assignments)
    elif keras_graphs.sequential_graph(model) is not None:
        check_assignments(model, assignments)


def invalidate(model: Any, change: str) -> None:
    """Marks the assignment of a `Sequential` as outdated after its layers changed."""
    if state_of(model).assignment or state_of(model).saved_stages:
        update_state(model, assignment_valid=False)
        _log.info(
            "%s a pipelined Sequential model has invalidated the pipeline stage assignment. You need to call "
            "`set_pipeline_stage_assignment()` before executing again.",
            change,
        )


def model_name(model: Any) -> str:
    """Returns the name of a model, for messages."""
    assert isinstance(model, keras.Model)
    return str(model.name)


def nested_assignments(assignments: Sequence[Any]) -> list[Any]:
    """All assignments of layers, those within inner models too, in order."""
    return [
        each
        for assignment in assignments
        for each in (
            nested_assignments(assignment.pipeline_stage_assignments) if assignment.is_nested_model else [assignment]
        )
    ]
