"""Computes, before a pipeline runs, which values pass between its stages, and which are stashed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ipu_tf.device.program.stage_program import StageProgram, StageSegment
from ipu_tf.device.schedule.timetable import TaskKind


@dataclasses.dataclass(frozen=True)
class Routes:
    """Value routing of a pipeline.

    Attributes:
        segment: from a pass and stage to the index of its segment.
        receivers: for each segment, for each of its outputs, the stages that take it, its own perhaps among them.
        kept: for each stage the values that are there after its forward pass and that it takes later: for its backward
            pass, or to repeat the forward pass before.
        for_update: values of the last micro-batch that the update reads.
        readers: for each value that no micro-batch makes the stages that read it.
    """

    segment: Mapping[tuple[TaskKind, int], int]
    receivers: tuple[tuple[tuple[int, ...], ...], ...]
    kept: tuple[frozenset[int], ...]
    for_update: frozenset[int]
    readers: Mapping[int, tuple[int, ...]]


def routes(program: StageProgram) -> Routes:
    """Computes the routes of a program's values."""
    segments = program.segments
    again = {s.stage: frozenset(s.outputs) for s in segments if s.kind is TaskKind.RECOMPUTE}
    made = {v: index for index, s in enumerate(segments) if s.kind is not TaskKind.RECOMPUTE for v in s.outputs}
    read: dict[int, dict[int, None]] = {}
    for segment in segments:
        for value in (*segment.constants, *segment.states):
            read.setdefault(value, {})[segment.stage] = None
    for step in program.updates:
        for value in step.inputs:
            read.setdefault(value, {})[step.stage] = None
    return Routes(
        segment={(segment.kind, segment.stage): index for index, segment in enumerate(segments)},
        receivers=tuple(tuple(_takers(program, again, s, value) for value in s.outputs) for s in segments),
        kept=tuple(_kept(program, again, made, stage) for stage in range(program.stages)),
        for_update=frozenset(value for step in program.updates for value in step.inputs) & frozenset(made),
        readers={value: tuple(stages) for value, stages in read.items()},
    )


def _takers(
    program: StageProgram, again: Mapping[int, frozenset[int]], maker: StageSegment, value: int
) -> tuple[int, ...]:
    """Returns the stages that receive a value from the segment that computes it."""
    if maker.kind is TaskKind.RECOMPUTE:
        return (maker.stage,)
    return tuple(
        dict.fromkeys(s.stage for s in program.segments if value in s.inputs and not _computes(again, s, value))
    )


def _kept(
    program: StageProgram, again: Mapping[int, frozenset[int]], made: Mapping[int, int], stage: int
) -> frozenset[int]:
    """Returns the values that a stage stashes from its forward pass on. F(s) is level s."""
    later = [s for s in program.segments if s.stage == stage and s.kind is not TaskKind.FORWARD]
    taken = {value for s in later for value in s.inputs if not _computes(again, s, value)}
    return frozenset(value for value in taken if made[value] <= stage)


def _computes(again: Mapping[int, frozenset[int]], segment: StageSegment, value: int) -> bool:
    """Tests whether a backward pass takes a value from the recomputed forward pass of its stage."""
    return segment.kind is TaskKind.BACKWARD and value in again.get(segment.stage, ())
