"""Assigns a model's layers to pipeline stages (`assign`), and reads the assignment (`assigned`)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import keras

from keras_ipu.options.model_state import ModelState, reset_functions, state_of, update_state
from keras_ipu.pipeline.assignment_checks import check_given, make_assignment
from keras_ipu.pipeline.graph import ModelKind, graph_of, kind_of, post_order
from keras_ipu.pipeline.saved_stages import fill_in_stages
from keras_ipu.pipeline.stage_assignment import copies
from keras_ipu.pipeline.stage_scopes import recorded_stage, required_stage, stage_of_node
from keras_ipu.stock.ownership import is_ipu_model

_log = logging.getLogger("ipu_tf")


def assign(model: Any, assignments: list[Any]) -> None:
    """Checks stage assignments of a model's layers and makes them the model's.

    Args:
        model: the model.
        assignments: one for each call of a layer; for a `Sequential` also stages, whose integers become assignments.

    Raises:
        ValueError: if they do not fit the model's layers, or a call depends on a later stage.
        RuntimeError: for a subclassed model that is not built.
    """
    _check_and_store(model, assignments)
    reset_functions(model)


def _check_and_store(model: Any, assignments: list[Any], valid: bool = True) -> None:
    """Makes assignments the model's; checks them unless they were invalid already when the model was saved."""
    if valid:
        check_given(model, assignments)
    update_state(model, assignment=tuple(assignments), assignment_valid=valid, saved_stages=None)


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
    """Returns the assignments of a model; empty if it is not pipelined.

    Stages of a saved model and of `PipelineStage` scopes wait for the model's graph, which a subclassed model gets
    late: they are assigned when they are first asked for.
    """
    state, sequential = state_of(model), kind_of(model) is ModelKind.SEQUENTIAL
    if state.saved_stages is not None and (sequential or graph_of(model) is not None):
        _assign_saved(model, state.saved_stages, state.assignment_valid)
    elif sequential and not state.scopes_read and not state.assignment:
        _assign_sequential(model)
    if state.graph is not None and not state.scopes_read:
        assign_from_scopes(model)
    return state_of(model).assignment


def _assign_saved(model: Any, stages: Any, valid: bool) -> None:
    filled = fill_in_stages(default_assignments(model), stages)
    try:
        _check_and_store(model, filled, valid)
    except ValueError as error:
        raise ValueError(
            f"The saved pipeline stages of '{model.name}' do not fit its layers: {error} Call "
            "`reset_pipeline_stage_assignment()` and assign its stages anew, or save the model again."
        ) from error


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
    assign(model, [_assignment(model, node.operation, node, _scope_stage(node)) for node in nodes])


def _assign_sequential(model: Any) -> None:
    """Assigns the layers of a `Sequential` to the stages they were made in. That they follow is checked when it runs.

    Raises:
        ValueError: if only some of the layers have a stage.
    """
    if any(recorded_stage(layer) is not None for layer in model.layers):
        assignments = [_assignment(model, layer, None, _made_in(layer)) for layer in model.layers]
        update_state(model, scopes_read=True, assignment=tuple(assignments), assignment_valid=True)


def _made_in(layer: Any) -> int | None:
    return None if is_ipu_model(layer) else required_stage(recorded_stage(layer), layer)


def _assignment(model: Any, layer: Any, node: Any, stage: int | None) -> Any:
    nested = copies(layer.get_pipeline_stage_assignment()) if is_ipu_model(layer) else None
    return make_assignment(model, layer, node, stage, nested)


def _scope_stage(node: Any) -> int | None:
    stage = stage_of_node(node)
    return stage if is_ipu_model(node.operation) else required_stage(stage, node.operation)


def invalidate(model: Any, change: str) -> None:
    """Marks the assignment of a `Sequential` as outdated after its layers changed; that of scopes is read again."""
    if _is_of_scopes(state_of(model)):
        update_state(model, scopes_read=False, assignment=(), assignment_valid=False)
    elif state_of(model).assignment or state_of(model).saved_stages:
        update_state(model, assignment_valid=False)
        _log.info(
            "%s a pipelined Sequential model has invalidated the pipeline stage assignment. You need to call "
            "`set_pipeline_stage_assignment()` before executing again.",
            change,
        )


def _is_of_scopes(state: ModelState) -> bool:
    own = [each for each in state.assignment if not each.is_nested_model]
    return state.scopes_read and bool(own) and all(recorded_stage(each.layer) == each.pipeline_stage for each in own)


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
