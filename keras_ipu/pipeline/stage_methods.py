"""Methods of IPU models: `get_`, `set_` and `reset_pipeline_stage_assignment`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from keras_ipu.options.model_state import reset_functions, state_of, update_state
from keras_ipu.pipeline.assigned_stages import assign, assigned, default_assignments, model_name
from keras_ipu.pipeline.graph import ModelKind, kind_of
from keras_ipu.pipeline.stage_summary import print_summary

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
        assign(self, pipeline_stage_assignment)

    def reset_pipeline_stage_assignment(self) -> None:
        """Clears the pipeline stages of all layers: the model is no longer pipelined."""
        update_state(self, assignment=(), assignment_valid=False, saved_stages=None, scopes_read=True)
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
