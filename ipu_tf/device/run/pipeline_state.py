"""State of a running pipeline: values by device, and micro-batches in flight."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipu_tf.device.memory.hidden_state import SEED, replica_axes
from ipu_tf.device.program.program import Arrays, Hidden
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.device.program.stage_program import StageProgram, StageSegment
from ipu_tf.device.schedule.timetable import TaskKind


class PipelineState:
    """State of one run.

    Args:
        program: the pipeline.
        places: the replicas of each stage, on its JAX devices.
        hidden: the hidden state that the run starts with.

    Attributes:
        values: values that no micro-batch makes, and those of the last one that the update reads, by value and device.
        hidden: of each segment its hidden state, such as accumulators.
        tokens: of each stage something small on its device.
        seed: where the next micro-batch's random draws start; None without.
        inbox: of each stage, by micro-batch, what was sent to it.
        stash: of each stage, by micro-batch, what its forward pass leaves: for its backward pass, or to be repeated.
        repeated: of each stage, by micro-batch, what its repeated forward pass gave.
        seeds: by micro-batch where each of its draws starts.
    """

    def __init__(self, program: StageProgram, places: Sequence[Replicas], hidden: Hidden) -> None:
        self.values: dict[tuple[int, int], jax.Array] = {}
        self.hidden: list[Hidden] = [_zeros(segment.hidden, places[segment.stage]) for segment in program.segments]
        self.tokens = [place.place(np.zeros(place.with_axis(()), np.int32), 0) for place in places]
        self.seed: Any = places[0].place(hidden[SEED], 0) if SEED in hidden else None
        self._replicas = places[0].count
        self._stages = program.stages
        self.forget_micro_batches()

    def forget_micro_batches(self) -> None:
        """Clears the micro-batches in flight, between two passes."""
        self.inbox = [collections.defaultdict[int, dict[int, jax.Array]](dict) for _ in range(self._stages)]
        self.stash: list[dict[int, dict[int, jax.Array]]] = [{} for _ in range(self._stages)]
        self.repeated: list[dict[int, dict[int, jax.Array]]] = [{} for _ in range(self._stages)]
        self.seeds: dict[int, Arrays] = {}

    def take(self, segment: StageSegment, micro_batch: int) -> Arrays:
        """Takes the inputs of a pass for its micro-batch."""
        there = dict(self.inbox[segment.stage][micro_batch])
        if segment.kind is not TaskKind.FORWARD:
            there |= self.stash[segment.stage].get(micro_batch, {})
            there |= self.repeated[segment.stage].get(micro_batch, {})
        return tuple(there[value] for value in segment.inputs)

    def release(self, segment: StageSegment, micro_batch: int) -> None:
        """Releases values that no later pass of the stage reads."""
        if segment.kind is TaskKind.BACKWARD:
            del self.stash[segment.stage][micro_batch]
            self.repeated[segment.stage].pop(micro_batch, None)
        if segment.kind is not TaskKind.RECOMPUTE:
            self.inbox[segment.stage].pop(micro_batch, None)

    def stashed(self, stage: int) -> tuple[int, int]:
        """Returns the number of stashed micro-batches of a stage in each replica, and their bytes.

        Recomputed activations count too.
        """
        there = [*self.stash[stage].values(), *self.repeated[stage].values()]
        size = sum(array.nbytes for each in there for array in each.values())
        return len(self.stash[stage]), size // self._replicas

    def found(self, value: int, device: int) -> jax.Array:
        """Looks up a value on this device, else on any."""
        if (value, device) in self.values:
            return self.values[value, device]
        return next(array for (number, _), array in self.values.items() if number == value)


def _zeros(types: Mapping[str, jax.ShapeDtypeStruct], place: Replicas) -> Hidden:
    """Returns a segment's initial hidden state."""
    axes = replica_axes(types)
    shapes = {key: t.shape if axes[key] is None else place.with_axis(t.shape) for key, t in types.items()}
    return {key: place.place(np.zeros(shapes[key], t.dtype), axes[key]) for key, t in types.items()}
