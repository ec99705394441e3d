"""Remembers which layers were made, and which calls of layers recorded, within a `PipelineStage`."""

from __future__ import annotations

import contextvars
from typing import Any

_ATTRIBUTE = "_ipu_pipeline_stage"
_current: contextvars.ContextVar[int | None] = contextvars.ContextVar("ipu_pipeline_stage", default=None)
_seen: list[int] = [0]


def stages_entered() -> int:
    """How many `PipelineStage`s were entered in this process so far."""
    return _seen[0]


def current_stage() -> int | None:
    """The stage of the `PipelineStage` around, or None."""
    return _current.get()


def enter_stage(stage: int) -> contextvars.Token[int | None]:
    """Makes `stage` the current one. Give the token to `leave_stage`."""
    _seen[0] += 1
    return _current.set(stage)


def leave_stage(token: contextvars.Token[int | None]) -> None:
    """Ends what `enter_stage` began."""
    _current.reset(token)


def record_stage(made: Any) -> None:
    """Notes the current stage, if there is one, at a new layer or node of Keras's graph."""
    stage = _current.get()
    if stage is not None:
        # Past Keras's attribute tracking: a layer has not been initialised yet when it is recorded.
        vars(made)[_ATTRIBUTE] = stage


def recorded_stage(made: Any) -> int | None:
    """The stage in which a layer was made or a node recorded, or None."""
    return vars(made).get(_ATTRIBUTE)


def stage_of_node(node: Any) -> int | None:
    """The stage of a call: that around the call, else that around the making of its layer, else None."""
    stage = recorded_stage(node)
    return recorded_stage(node.operation) if stage is None else stage
