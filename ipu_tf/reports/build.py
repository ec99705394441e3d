"""`report_of`: the report on a device program; `last`: that on the program which was executed last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from ipu_tf.device.program.program import LoopPart, Program, bytes_of
from ipu_tf.device.program.program import Part as ProgramPart
from ipu_tf.device.program.replicas import AXIS
from ipu_tf.device.run.last_program import last_program
from ipu_tf.lowering.importer.op_scopes import named_operations
from ipu_tf.reports.liveness import Input, part_of
from ipu_tf.reports.part import Category, Part
from ipu_tf.reports.report import Report


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
    program = last_program()
    if program is None:
        raise LookupError("There is no program to report on: wanted one that was executed, and that is still in use.")
    return report_of(program)


def report_of(program: Program) -> Report:
    """Returns the report on a program, which is traced and not run."""
    types = dict(enumerate(program.parameters))
    with jax.enable_x64(True), named_operations():
        parts = tuple(_part(program, index, types) for index in range(len(program.parts)))
    return Report(program.name, program.replicas, parts)


def _part(program: Program, index: int, types: dict[int, Any]) -> Part:
    """Reports on a part, and adds the types of the slots that it fills."""
    part = program.parts[index]
    straight = not isinstance(part, LoopPart)
    groups = [part.carry_in, part.constants] if isinstance(part, LoopPart) else [part.live_in]
    axes = [(AXIS, program.replicas)] if program.replicas > 1 else None
    trace = jax.make_jaxpr(part.step if isinstance(part, LoopPart) else part.run, axis_env=axes, return_shape=True)
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
    results = [_result(program, slot) for slot in out] if straight else [each.category for each in first]
    results += [_hidden(key, each).category for key, each in sorted(hidden.items())]
    results += [Category.FEEDS] * (len(closed.jaxpr.outvars) - len(results))
    types.update((slot, each) for slot, each in zip(out, filled, strict=True) if slot is not None)
    kind = "straight line" if not isinstance(part, LoopPart) else "loop without feeds" if part.feedless else "loop"
    return part_of(kind, closed.jaxpr, inputs, results)


def _read_after(program: Program, index: int) -> set[int]:
    return {slot for part in program.parts[index + 1 :] for slot in part.live_in} | set(program.results)


def _slot(program: Program, slot: int, types: Mapping[int, Any], kept: bool) -> Input:
    size = bytes_of((types[slot],))
    if slot >= len(program.parameters):
        return Input(f"slot {slot}", _result(program, slot), size, kept)
    name = program.parameter_names[slot] if program.parameter_names else f"parameter {slot}"
    return Input(name, Category.STATE if slot in program.aliases.values() else Category.READ, size, kept)


def _result(program: Program, slot: int | None) -> Category:
    state = {program.results[index] for index in program.aliases}
    return Category.STATE if slot in state else Category.TEMPORARIES


def _hidden(key: str, struct: Any) -> Input:
    category = Category.ACCUMULATORS if key.startswith("accumulator") else Category.HIDDEN
    return Input(key, category, bytes_of((struct,)))


def _fed(part: ProgramPart) -> list[Input]:
    queues = sorted(part.infeeds.items())
    return [Input(f"infeed {name}", Category.FEEDS, bytes_of((each,))) for name, types in queues for each in types]
