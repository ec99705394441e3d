"""Compiles the forward, backward and update functions of each pipeline stage, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from ipu_tf.device.cache.compiler_options import compiler_options
from ipu_tf.device.device_log import log_operations
from ipu_tf.device.elementwise.evaluate import with_native_elementwise
from ipu_tf.device.memory.hidden_state import ITERATION, replica_axes
from ipu_tf.device.paused_collection import paused_collection
from ipu_tf.device.program.program import Arrays, Elements, Hidden
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.device.program.stage_program import StageProgram, StageSegment, UpdateStep
from ipu_tf.device.run.run_record import compiling


class StageFunctions:
    """Compiled functions of one program. JAX compiles each at its first use, for the device of its stage.

    Args:
        program: the program.
        places: the replicas of each stage, on its JAX devices.
        donate: whether executions donate the buffers of replaced values.

    Attributes:
        segments: for each segment `(states, hidden, token, constants, inputs, seeds, elements)
            -> (outputs, states, hidden, enqueued, done)`. The token selects the device; `done` can be waited for.
        updates: `(taken, kept, token) -> (outputs, enqueued, done)` for each step.
        seeds: from the seed to that of the next micro-batch, and those of this one's draws.
    """

    def __init__(self, program: StageProgram, places: Sequence[Replicas], donate: bool) -> None:
        self.segments = [
            _compiled(_replicated_segment(each, places[each.stage]), (0, 1) if donate else ())
            for each in program.segments
        ]
        self.updates = [
            _compiled(places[each.stage].over(_update(each), (0, 0, 0), (0, 0, 0)), (0,) if donate else ())
            for each in program.updates
        ]
        self.seeds = _compiled(places[0].over(_seeds(program.draws), (0,), (0, 0)), ())


def _compiled(function: Callable[..., Any], donate: tuple[int, ...]) -> Any:
    jitted = jax.jit(with_native_elementwise(function), donate_argnums=donate, compiler_options=compiler_options())
    ready = False

    def run(*arguments: Any) -> Any:
        nonlocal ready
        if not ready:
            with compiling(), paused_collection():
                log_operations(jitted, arguments)
                jitted.lower(*arguments).compile()  # kept by JAX for the call
            ready = True
        return jitted(*arguments)

    return run


def _replicated_segment(segment: StageSegment, place: Replicas) -> Callable[..., Any]:
    hidden = replica_axes(segment.hidden)
    return place.over(_segment(segment), (0, hidden, 0, 0, 0, 0, 0), (0, 0, hidden, 0, 0))


def _segment(segment: StageSegment) -> Callable[..., Any]:
    def run(
        states: Arrays, hidden: Hidden, token: Any, constants: Arrays, inputs: Arrays, seeds: Arrays, elements: Elements
    ) -> Any:
        outputs, states, hidden, enqueued = segment.run(states, hidden, constants, inputs, seeds, elements)
        if ITERATION in hidden:
            hidden = {**hidden, ITERATION: hidden[ITERATION] + 1}
        return outputs, states, hidden, enqueued, token + 1

    run.__name__ = f"{segment.kind.name.lower()}_{segment.stage}"
    return run


def _update(step: UpdateStep) -> Callable[..., Any]:
    def run(taken: Mapping[int, Any], kept: Mapping[int, Any], token: Any) -> Any:
        return (*step.run(taken, kept), token + 1)

    run.__name__ = f"update_{step.stage}"
    return run


def _seeds(draws: int) -> Callable[[Any], tuple[Any, Arrays]]:
    def run(seed: Any) -> tuple[Any, Arrays]:
        starts = []
        for _ in range(draws):
            starts.append(seed)
            seed = jax.random.split(seed)[0]
        return seed, tuple(starts)

    return run
