"""Compiles a program into the executable cache without running it, for connection type `PRE_COMPILE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipu_tf.device.cache import executable_cache
from ipu_tf.device.memory import hidden_state
from ipu_tf.device.program.program import Arrays, Hidden, LoopPart, StraightLinePart
from ipu_tf.device.program.slots import Slots
from ipu_tf.device.run.compiled_parts import CompiledParts
from ipu_tf.device.run.loop_run import LoopRun


def fill_cache(executable: CompiledParts, parameters: Sequence[Any]) -> None:
    """Compiles an executable's program into the executable cache, if it is on.

    Parts of the program without feeds are run, since how often a loop runs may be computed in one; nothing that they
    compute leaves the device. Parts with feeds are compiled and not run.

    Args:
        executable: of the program.
        parameters: as `Executable.run` takes them. None of them is donated.
    """
    program, replicas = executable.program, executable.replicas
    if executable_cache.directory() is None or program.uses_callbacks:
        return
    types = program.parameters
    slots = Slots(program, [replicas.spread(p, t.shape) for p, t in zip(parameters, types, strict=True)])
    state = {
        key: replicas.spread(jnp.zeros(t.shape, t.dtype), t.shape) if key != hidden_state.ITERATION else jnp.int32(0)
        for key, t in program.hidden.items()
    }
    for index, part in enumerate(program.parts):
        if isinstance(part, LoopPart):
            _loop(executable, index, part, slots, state)
        else:
            slots.fill(part.live_out, _straight(executable, index, part, slots, state))


def _loop(executable: CompiledParts, index: int, part: LoopPart, slots: Slots, state: Hidden) -> None:
    loop = LoopRun(executable, index, part, slots, state)
    carry = loop.prepare()
    slots.fill(part.carry_out, [jnp.zeros(t.shape, t.dtype) for t in carry])


def _straight(executable: CompiledParts, index: int, part: StraightLinePart, slots: Slots, state: Hidden) -> Arrays:
    function = executable.straight_line_function(index, part)
    taken, kept = slots.take(index)
    one = executable.replicas.with_axis
    elements = {
        name: tuple(executable.replicas.place(jnp.zeros(one(t.shape), t.dtype), 0) for t in row)
        for name, row in part.infeeds.items()
    }
    outputs, _, _ = function.prepare(taken, kept, state, elements)
    if part.infeeds or part.outfeeds:
        return tuple(jnp.zeros(t.shape, t.dtype) for t in outputs)
    outputs, _, _ = function(jax.tree.map(jnp.copy, taken), kept, jax.tree.map(jnp.copy, state), elements)
    return tuple(outputs)
