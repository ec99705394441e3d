"""Saves and restores stage assignments as nested lists in a model's file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Stages = list["int | Stages"]


def stages_to_save(assignments: Sequence[Any]) -> Stages:
    """Returns the stages of assignments as nested lists.

    Example:
        >>> from keras_ipu.pipeline.stage_assignment import SequentialLayerPipelineStageAssignment
        >>> stages_to_save([SequentialLayerPipelineStageAssignment(None, stage) for stage in (0, 1)])
        [0, 1]
    """
    return [
        stages_to_save(each.pipeline_stage_assignments) if each.is_nested_model else each.pipeline_stage
        for each in assignments
    ]


def fill_in_stages(assignments: list[Any], stages: Any) -> list[Any]:
    """Sets saved stages in the assignments of a model, in place.

    Raises:
        ValueError: if the model has other layers than the one that was saved.
    """
    if len(assignments) != len(stages):
        raise ValueError(
            f"The saved pipeline stages are of a model with {len(stages)} calls of layers, but this one has "
            f"{len(assignments)}. Call `reset_pipeline_stage_assignment()` and assign its stages anew."
        )
    for assignment, stage in zip(assignments, stages, strict=True):
        if assignment.is_nested_model != isinstance(stage, list):
            raise ValueError(
                "The saved pipeline stages are of a model with inner models elsewhere. Call "
                "`reset_pipeline_stage_assignment()` and assign its stages anew."
            )
        if assignment.is_nested_model:
            fill_in_stages(assignment.pipeline_stage_assignments, stage)
        else:
            assignment.pipeline_stage = stage
    return assignments
