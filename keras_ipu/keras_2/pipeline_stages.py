"""Pipeline stages of Keras 2's models: assignments of their layers, whose numbers are those of gradient accumulation.

A pipeline of Keras 2 computes on one device: nothing cuts its step at the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipu_tf.emulation import EmulationError
from keras_ipu.options.model_state import reset_functions, state_of, update_state
from keras_ipu.pipeline.assignment_checks import check_length
from keras_ipu.pipeline.graph import ModelKind
from keras_ipu.pipeline.stage_assignment import (
    FunctionalLayerPipelineStageAssignment,
    SequentialLayerPipelineStageAssignment,
)
from keras_ipu.pipeline.stage_scopes import recorded_stage, required_stage
from keras_ipu.pipeline.stage_summary import print_summary

STAGES_IN_CALL = (
    "Pipeline stages need the graph of a model's layers. Received: `PipelineStage` scopes in {model}, which is "
    "subclassed, or within the call of one of its layers. Make a functional model of its layers."
)


class Keras2LayerPipelineStageAssignment(FunctionalLayerPipelineStageAssignment):
    """The stage of one call of a layer of a functional model of Keras 2; arguments as for Keras 3's."""

    @property
    def inbound_layers(self) -> list[Any]:
        """The layers whose outputs the call takes, `InputLayer`s among them."""
        return [node.layer for node in self.layer.inbound_nodes[self.node_index].parent_nodes]


class StageMethods:
    """Methods of every model of Keras 2 that was made in the scope of an `IPUStrategy`."""

    def get_pipeline_stage_assignment(self) -> list[Any]:
        """The pipeline stage assignments of the model's layers in the order in which they run, input layers left out.

        Returns:
            A new list of assignments: those that were set, by `set_pipeline_stage_assignment` or by `PipelineStage`
            scopes, else one without a stage for each call of a layer.

        Raises:
            RuntimeError: for a subclassed model, which has no graph.
            EmulationError: for a model with a model among its layers.
        """
        assign_from_scopes(self)
        return list(state_of(self).assignment) or _unassigned(self)

    def set_pipeline_stage_assignment(self, pipeline_stage_assignment: list[Any]) -> None:
        """Assigns every layer of the model to a pipeline stage.

        Args:
            pipeline_stage_assignment: what `get_pipeline_stage_assignment` gave, with the stages filled in.

        Raises:
            ValueError: if it does not fit the model's layers, a layer has no stage, or one depends on a later stage.
            RuntimeError: if a stage has no layer, and for a subclassed model.
        """
        _assign(self, pipeline_stage_assignment)

    def reset_pipeline_stage_assignment(self) -> None:
        """Clears the pipeline stages of all layers: the model is no longer pipelined."""
        update_state(self, assignment=(), assignment_valid=False, scopes_read=True)
        reset_functions(self)

    def print_pipeline_stage_assignment_summary(
        self, line_length: int | None = None, print_fn: Callable[[str], Any] | None = None
    ) -> None:
        """Prints a table of the pipeline stage assignments.

        Args:
            line_length: characters in a line; 89, or 60 for a `Sequential`.
            print_fn: takes each line; `print` if None.
        """
        kind = ModelKind.SEQUENTIAL if _is_sequential(self) else ModelKind.FUNCTIONAL
        name, assignments = getattr(self, "name", ""), self.get_pipeline_stage_assignment()
        print_summary(name, kind, assignments, line_length, print_fn or print)


def assign_from_scopes(model: Any) -> None:
    """Assigns a model's layers to the stages of their `PipelineStage` scopes, if there are any and none was set.

    Raises:
        ValueError: if only some of the layers have a stage, or one depends on a later stage.
        EmulationError: for a subclassed model, and one with a model among its layers.
    """
    state = state_of(model)
    if state.assignment or state.scopes_read:
        return
    recorded = [recorded_stage(node) for layer in _layers(model) for node in (layer, *layer.inbound_nodes)]
    if all(stage is None for stage in recorded):
        return
    if not _is_sequential(model) and not hasattr(model, "_nodes_by_depth"):
        raise EmulationError(STAGES_IN_CALL.format(model=model.name))
    assignments = _unassigned(model)
    for each in assignments:
        index = getattr(each, "node_index", None)
        of_call = None if index is None else recorded_stage(each.layer.inbound_nodes[index])
        each.pipeline_stage = required_stage(recorded_stage(each.layer) if of_call is None else of_call, each.layer)
    _assign(model, assignments)


def _assign(model: Any, assignments: list[Any]) -> None:
    wanted = _unassigned(model)
    check_length(assignments, len(wanted))
    for given, own in zip(assignments, wanted, strict=True):
        _check_place(given, own)
    _check_stages(assignments)
    update_state(model, assignment=tuple(assignments), assignment_valid=True)
    reset_functions(model)


def _layers(model: Any) -> list[Any]:
    """Returns a model's layers, also of models of `applications/resnet.py`, which hide them."""
    if _is_sequential(model):
        return list(model.layers)
    return list(model._flatten_layers(include_self=False, recursive=False))  # noqa: SLF001 - what `layers` is made of


def _is_sequential(model: Any) -> bool:
    return hasattr(model, "pop")  # the method that Keras's sequential models have alone


def _unassigned(model: Any) -> list[Any]:
    """Returns an assignment without a stage for each call of a model's layers."""
    inner = next((layer.name for layer in _layers(model) if hasattr(layer, "set_pipeline_stage_assignment")), None)
    if inner is not None:
        raise EmulationError(
            f"Pipeline stages of Keras 2's models are those of layers. Received: the model {inner} within "
            f"{model.name}. Call its layers in the outer model."
        )
    if _is_sequential(model):
        return [SequentialLayerPipelineStageAssignment(layer) for layer in model.layers]
    by_depth = getattr(model, "_nodes_by_depth", None)
    if by_depth is None:
        raise RuntimeError(
            f"Pipeline stages need the graph of a model's layers. Received: {model.name}, which is subclassed. Make a "
            "functional model of its layers."
        )
    nodes = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth] if not node.is_input]
    return [Keras2LayerPipelineStageAssignment(node.layer, _index(node)) for node in nodes]


def _index(node: Any) -> int:
    return next(place for place, each in enumerate(node.layer.inbound_nodes) if each is node)


def _check_place(given: Any, own: Any) -> None:
    if type(given) is not type(own) or given.layer is not own.layer:
        named = getattr(getattr(given, "layer", None), "name", type(given).__name__)
        raise ValueError(
            "The order of `pipeline_stage_assignment` does not match the post-order generated from the graph "
            f"({named} != {own.layer.name})."
        )
    if given.pipeline_stage is None:
        raise ValueError(
            f"Layer {own.layer.name} has not been assigned a pipeline stage in `pipeline_stage_assignment`."
        )


def _check_stages(assignments: Sequence[Any]) -> None:
    """Checks that layers take outputs of earlier stages only, and that each stage has a layer."""
    of_calls: dict[int, int] = {}
    before = 0
    for each in assignments:
        node = each.layer.inbound_nodes[each.node_index] if hasattr(each, "node_index") else None
        known = before if node is None else max((of_calls.get(id(one), 0) for one in node.parent_nodes), default=0)
        if each.pipeline_stage < known:
            raise ValueError(
                f"Layer {each.layer.name} in pipeline stage {each.pipeline_stage} has a dependency from a pipeline "
                "stage which has not yet been executed. Layers can only use outputs from current or previous pipeline "
                "stages."
            )
        before = of_calls[id(node)] = each.pipeline_stage
    used = {each.pipeline_stage for each in assignments}
    missing = sorted(set(range(max(used) + 1)) - used)
    if missing:
        raise RuntimeError(
            "All stages in a pipeline must have at lease one layer assigned to them. The highest stage with an "
            f"assignment is stage {max(used)}, however the preceeding stages {missing} had no assignments."
        )
