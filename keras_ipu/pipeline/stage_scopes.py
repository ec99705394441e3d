"""Records the `PipelineStage` scope of each layer and layer call."""

from __future__ import annotations

import contextvars
import sys
from typing import Any

from ipu_tf._state.registry import ProcessValue, register_state

_ATTRIBUTE = "_ipu_pipeline_stage"
_current: contextvars.ContextVar[int | None] = contextvars.ContextVar("ipu_pipeline_stage", default=None)
_entered = register_state("number of stages entered", ProcessValue(0), kept="only differences are used")


def stages_are_used() -> bool:
    """Returns whether the program has imported `PipelineStage`."""
    return "keras_ipu.pipeline.stage" in sys.modules


def stages_entered() -> int:
    """Counts the `PipelineStage`s entered in this process."""
    return _entered.value


def current_stage() -> int | None:
    """Returns the stage of the innermost `PipelineStage` scope, or None."""
    return _current.get()


def enter_stage(stage: int) -> contextvars.Token[int | None]:
    """Makes `stage` the current one; returns the token for `leave_stage`."""
    _entered.value += 1
    return _current.set(stage)


def leave_stage(token: contextvars.Token[int | None]) -> None:
    """Leaves the stage of an `enter_stage`."""
    _current.reset(token)


def record_stage(made: Any) -> None:
    """Records the current stage, if there is one, on a new layer or node of Keras's graph."""
    stage = _current.get()
    if stage is not None:
        # Bypasses Keras's attribute tracking: a layer has not been initialised yet when it is recorded.
        vars(made)[_ATTRIBUTE] = stage


def recorded_stage(made: Any) -> int | None:
    """Returns the recorded stage of a layer or node, or None."""
    return vars(made).get(_ATTRIBUTE)


def stage_of_node(node: Any) -> int | None:
    """Returns the stage of a layer call: the scope of the call, else that of its layer's creation, else None."""
    stage = recorded_stage(node)
    return recorded_stage(node.operation) if stage is None else stage


def required_stage(stage: int | None, layer: Any) -> int:
    """Returns the stage of a layer, or of its call, in a model whose other layers have one.

    Raises:
        ValueError: if it is None.
    """
    if stage is None:
        raise ValueError(
            f"All layers of a pipelined model must have an associated pipeline stage. However, {layer.name} has not "
            "been assigned to one. Pipeline stages can be assigned when a layer is constructed, or each time a layer "
            "is called. Different pipeline stages can assigned to each call."
        )
    return stage
