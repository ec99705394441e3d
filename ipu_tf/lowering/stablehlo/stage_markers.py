"""Parses pipeline stage markers: stage boundaries and recomputation checkpoints."""

from __future__ import annotations

import dataclasses
from typing import Any

from ipu_tf.device.schedule.timetable import Recomputation
from ipu_tf.lowering.stablehlo.module import configuration, custom_call_target

STAGE_BOUNDARY = "ipu.stage_boundary"
CHECKPOINT = "ipu.recomputation_checkpoint"
"""On what a stage keeps where it computes its activations again. Its result is its operand."""


@dataclasses.dataclass(frozen=True)
class StageMarker:
    """Content of a stage marker: the pipeline, and the stage boundary.

    Attributes:
        stages: how many stages the pipeline has.
        mapping: the device of each stage; -1 for all of them, several for a stage of parallel parts.
        schedule: the number of its schedule.
        training: whether gradients come back.
        count: micro-batches to an update, or to a run of the schedule in inference; 0 where the program tells.
        stage: the stage before the boundary.
        backward: whether this is a gradient, on its way back into that stage.
        recomputation: how activations come to be there for backward passes: the name of a `Recomputation`.
    """

    stages: int
    mapping: tuple[Any, ...]
    schedule: int
    training: bool
    count: int
    stage: int
    backward: bool
    recomputation: str = Recomputation.NONE.name

    def pipeline(self) -> StageMarker:
        """Settings that every marker of one pipeline has in common."""
        return dataclasses.replace(self, stage=0, backward=False)


def stage_marker_of(operation: Any) -> StageMarker | None:
    """Parses a stage marker; None for any other op."""
    if custom_call_target(operation) != STAGE_BOUNDARY:
        return None
    settings = configuration(operation)
    mapping = tuple(tuple(where) if isinstance(where, list) else int(where) for where in settings.pop("mapping"))
    return StageMarker(mapping=mapping, **settings)
