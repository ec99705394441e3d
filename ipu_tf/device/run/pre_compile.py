"""Compiles a program into the executable cache without running it, for connection type `PRE_COMPILE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipu_tf.device.cache import executable_cache
from ipu_tf.device.feeds.execution_queues import ExecutionQueues
from ipu_tf.device.memory import hidden_state
from ipu_tf.device.program.program import Arrays, Hidden, LoopPart, StraightLinePart
from ipu_tf.device.program.slots import Slots
from ipu_tf.device.run.compiled_parts import CompiledParts
from ipu_tf.device.run.execution_context import ExecutionContext
from ipu_tf.device.run.loop_run import LoopRun


def fill_cache(executable: CompiledParts, parameters: Sequence[Any], own_queues: ExecutionQueues) -> None:
    """Compiles an executable's program into the executable cache, if it is on.

    Parts of the program without feeds are run, since how often a loop runs may be computed in one; nothing that they
    compute leaves the device. Parts with feeds are compiled and not run.

    Args:
        executable: of the program.
        parameters: as `Executable.run` takes them. None of them is donated.
        own_queues: as `Executable.run` takes them. Nothing is dequeued or enqueued.
    """
    program, replicas = executable.program, executable.replicas
    if executable_cache.directory() is None or program.uses_callbacks:
        return
    types = program.parameters
    slots = Slots(program, [replicas.spread(p, t.shape) for p, t in zip(parameters, types, strict=True)])
    context = ExecutionContext(executable, own_queues, slots)
    state = {
        key: replicas.spread(jnp.zeros(t.shape, t.dtype), t.shape) if key != hidden_state.ITERATION else jnp.int32(0)
        for key, t in program.hidden.items()
    }
    for index, part in enumerate(program.parts):
        if isinstance(part, LoopPart):
            _loop(context, index, part, state)
        else:
            slots.fill(part.live_out, _straight(context, index, part, state))


def _loop(context: ExecutionContext, index: int, part: LoopPart, state: Hidden) -> None:
    carry = LoopRun(context, index, part, state).prepare()
    context.slots.fill(part.carry_out, [jnp.zeros(t.shape, t.dtype) for t in carry])


def _straight(context: ExecutionContext, index: int, part: StraightLinePart, state: Hidden) -> Arrays:
    executable = context.executable
    function = executable.straight_line_function(index, part)
    taken, kept = context.slots.take(index)
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
