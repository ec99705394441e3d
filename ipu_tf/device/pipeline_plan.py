"""How values move between the stages of a cut pipeline: worked out once, before it runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ipu_tf.device.stage_program import StageProgram
from ipu_tf.device.timetable import TaskKind


@dataclasses.dataclass(frozen=True)
class Routes:
    """Where values go.

    Attributes:
        segment: from a pass and stage to the index of its segment.
        receivers: for each segment, for each of its outputs, the stages that take it, its own perhaps among them.
        kept: for each stage the values that its backward pass takes and that are there after its forward pass.
        for_update: values of the last micro-batch that the update reads.
        readers: for each value that no micro-batch makes the stages that read it.
    """

    segment: Mapping[tuple[TaskKind, int], int]
    receivers: tuple[tuple[tuple[int, ...], ...], ...]
    kept: tuple[frozenset[int], ...]
    for_update: frozenset[int]
    readers: Mapping[int, tuple[int, ...]]


def routes(program: StageProgram) -> Routes:
    """The routes of a program's values."""
    segments = program.segments
    taken_by = {
        value: tuple(dict.fromkeys(s.stage for s in segments if value in s.inputs))
        for segment in segments
        for value in segment.outputs
    }
    made = {value: index for index, segment in enumerate(segments) for value in segment.outputs}
    kept = [frozenset[int]() for _ in range(program.stages)]
    for index, segment in enumerate(segments):
        if segment.kind is TaskKind.BACKWARD:
            # F(s) is level s: what was made up to then is there, or on its way.
            kept[segment.stage] = frozenset(value for value in segment.inputs if made[value] <= segment.stage < index)
    read: dict[int, dict[int, None]] = {}
    for segment in segments:
        for value in (*segment.constants, *segment.states):
            read.setdefault(value, {})[segment.stage] = None
    for step in program.updates:
        for value in step.inputs:
            read.setdefault(value, {})[step.stage] = None
    return Routes(
        segment={(segment.kind, segment.stage): index for index, segment in enumerate(segments)},
        receivers=tuple(tuple(taken_by[value] for value in segment.outputs) for segment in segments),
        kept=tuple(kept),
        for_update=frozenset(value for step in program.updates for value in step.inputs) & frozenset(made),
        readers={value: tuple(stages) for value, stages in read.items()},
    )
