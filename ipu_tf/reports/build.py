"""`report_of`: the report on a device program; `last`: that on the program which was executed last."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from ipu_tf.device.convolution.convolve import explain
from ipu_tf.device.convolution.recorded import Recorded, record_convolutions
from ipu_tf.device.memory.hidden_state import ACCUMULATOR, readable_key
from ipu_tf.device.op_scopes import named_operations
from ipu_tf.device.program.program import LoopPart, Program, bytes_of
from ipu_tf.device.program.program import Part as ProgramPart
from ipu_tf.device.program.replicas import replica_axes_of
from ipu_tf.device.program.stage_program import StageProgram
from ipu_tf.device.run.last_program import last_program
from ipu_tf.device.run.pipeline_counts import pipeline_counts
from ipu_tf.device.run.pipeline_passes import passes
from ipu_tf.device.run.run_record import RunRecord
from ipu_tf.device.schedule.schedule_rules import MicroBatchCountError, ScheduleError
from ipu_tf.device.schedule.timetable import Timetable
from ipu_tf.reports.liveness import Input, part_of
from ipu_tf.reports.measured import measured
from ipu_tf.reports.part import Category, Part
from ipu_tf.reports.report import PlannedConvolution, Report
from ipu_tf.reports.stages import Axes, stage_memory


def last() -> Report:
    """Returns the report on the program that was executed last in this process. The program is traced again for it.

    Raises:
        LookupError: no program was executed, or it is gone with its model or function.

    Example:
        >>> import tensorflow as tf
        >>> import ipu_tf as ipu
        >>> ipu.config.IPUConfig().configure_ipu_system()
        >>> strategy = ipu.ipu_strategy.IPUStrategy()
        >>> doubled = tf.function(lambda x: 2.0 * x)
        >>> _ = strategy.run(doubled, args=[tf.ones([256])])
        >>> ipu.reports.last().peak
        3072
    """
    found = last_program()
    if found is None:
        raise LookupError("There is no program to report on: wanted one that was executed, and that is still in use.")
    return report_of(*found)


def report_of(program: Program, record: RunRecord | None = None, failed: str = "") -> Report:
    """Returns the report on a program, which is traced and not run.

    Args:
        program: the program.
        record: when it was compiled and executed, where that is known.
        failed: the error that ended its compilation: the report then has the parts up to one that cannot be traced.
    """
    types = dict(enumerate(program.parameters))
    parts: tuple[Part, ...] = ()
    with jax.enable_x64(True), named_operations(), record_convolutions() as planned:
        for index in range(len(program.parts)):
            try:
                parts += (_part(program, index, types, planned),)
            except Exception:
                if not failed:
                    raise
                parts += (Part("part that cannot be traced", (), ()),)
                break
    convolutions = tuple(PlannedConvolution(scope, explain(problem)) for scope, problem in planned.items())
    times = None
    if record is not None:
        times, parts = measured(record, failed), tuple(map(_with_task_times, parts))
    return Report(program.readable_name, program.replicas, parts, convolutions, times)


def _part(program: Program, index: int, types: dict[int, Any], planned: Recorded) -> Part:
    """Reports on a part, and adds the types of the slots that it fills."""
    part = program.parts[index]
    straight = not isinstance(part, LoopPart)
    groups = [part.carry_in, part.constants] if isinstance(part, LoopPart) else [part.live_in]
    axes = replica_axes_of(program.replicas)
    run = part.step if isinstance(part, LoopPart) else part.run
    # A function of its own: JAX would return what it traced for an earlier report, without recording anything.
    trace = jax.make_jaxpr(lambda *given: run(*given), axis_env=axes, return_shape=True)
    given = [tuple(types[slot] for slot in group) for group in groups]
    closed, (filled, hidden, _) = trace(*given, dict(program.hidden), dict(part.infeeds))
    dying, later = program.last_read_slots(index), _read_after(program, index)
    first = [_slot(program, slot, types, kept=straight and slot not in dying) for slot in groups[0]]
    constants = [_slot(program, slot, types, kept=True) for group in groups[1:] for slot in group]
    # A loop changes its carry: where others keep what it begins with, it takes a copy.
    read = dying | (set(groups[0]) if straight else set()) | {slot for group in groups[1:] for slot in group}
    held = [slot for slot in types if slot not in read and (slot < len(program.parameters) or slot in later)]
    inputs = [*first, *constants, *(_hidden(key, each) for key, each in sorted(program.hidden.items()))]
    inputs += [*_fed(part), *(_slot(program, slot, types, kept=True) for slot in held)]
    out = part.carry_out if isinstance(part, LoopPart) else part.live_out
    made = [_result(program, slot) for slot in out] if straight else [(each.category, each.name) for each in first]
    made += [(each.category, each.name) for each in (_hidden(*item) for item in sorted(hidden.items()))]
    results = [category for category, _ in made] + [Category.FEEDS] * (len(closed.jaxpr.outvars) - len(made))
    replaced = {place: name for place, (_, name) in enumerate(made) if name}
    types.update((slot, each) for slot, each in zip(out, filled, strict=True) if slot is not None)
    kind = "straight line" if not isinstance(part, LoopPart) else "loop without feeds" if part.feedless else "loop"
    listed = part_of(kind, closed.jaxpr, inputs, results, planned, replaced)
    return _with_stages(listed, part, list(zip(groups, (first, constants), strict=False)), types, axes)


def _with_stages(
    made: Part, part: ProgramPart, groups: list[tuple[Sequence[int], list[Input]]], types: dict[int, Any], axes: Axes
) -> Part:
    """Adds the timetable of a pipeline and the memory of its stages; `groups` are its carry and its constants."""
    stages, timetable = part.stages if isinstance(part, LoopPart) else None, _timetable(part)
    if not isinstance(stages, StageProgram) or timetable is None:
        return made
    numbered = zip((stages.carried, stages.outer), groups, strict=True)
    given = {
        value: (each, types[slot])
        for values, (slots, inputs) in numbered
        for value, slot, each in zip(values, slots, inputs, strict=True)
    }
    with record_convolutions():  # those of the loop are in the report already
        memory = stage_memory(stages, timetable, given, axes)
    return dataclasses.replace(made, pipeline=timetable, stages=memory)


def _timetable(part: ProgramPart) -> Timetable | None:
    """Returns the timetable of one weight update of a pipeline; None for what is none, or is not cut into stages."""
    stages = part.stages if isinstance(part, LoopPart) else None
    if not isinstance(stages, StageProgram) or not stages.count:
        return None
    try:
        return passes(stages, stages.count)[0]
    except (MicroBatchCountError, ScheduleError):  # it runs as one loop
        return None


def _with_task_times(part: Part) -> Part:
    """Adds the times of the last pipeline that ran on several devices, if it had this timetable."""
    counts = pipeline_counts()
    if part.pipeline is None or counts is None or counts.timetable != part.pipeline:
        return part
    return dataclasses.replace(part, task_times=counts.measured)


def _read_after(program: Program, index: int) -> set[int]:
    return {slot for part in program.parts[index + 1 :] for slot in part.live_in} | set(program.results)


def _slot(program: Program, slot: int, types: Mapping[int, Any], kept: bool) -> Input:
    size = bytes_of((types[slot],))
    if slot >= len(program.parameters):
        category, name = _result(program, slot)
        return Input(name or f"slot {slot}", category, size, kept)
    return Input(_parameter_name(program, slot), _parameter(program, slot), size, kept)


def _parameter_name(program: Program, slot: int) -> str:
    names = program.parameter_notes.names
    return names[slot] if names else f"parameter {slot}"


def _parameter(program: Program, slot: int) -> Category:
    notes = program.parameter_notes
    if slot in notes.weights:
        return Category.WEIGHTS
    if slot in notes.optimizer_state:
        return Category.OPTIMIZER
    return Category.STATE if slot in program.aliases.values() else Category.READ


def _result(program: Program, slot: int | None) -> tuple[Category, str]:
    """Returns what a slot is to the program, and the name of the parameter that it is the new value of, or ""."""
    parameter = None if slot is None else program.new_values.get(slot)
    if parameter is None:
        return Category.TEMPORARIES, ""
    return _parameter(program, parameter), _parameter_name(program, parameter)


def _hidden(key: str, struct: Any) -> Input:
    category = Category.ACCUMULATORS if key.startswith(ACCUMULATOR) else Category.HIDDEN
    return Input(readable_key(key), category, bytes_of((struct,)))


def _fed(part: ProgramPart) -> list[Input]:
    queues = sorted(part.infeeds.items())
    return [Input(f"infeed {name}", Category.FEEDS, bytes_of((each,))) for name, types in queues for each in types]
