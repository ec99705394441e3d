"""`StageProgram`: a pipeline cut into stages, as frozen data: segments, weight update steps, values between them.

                 F0 ──► F1 ──► F2 ─┐          segments of one micro-batch, each of one stage
    accumulate   B0 ◄── B1 ◄── B2 ◄┘
    update       U0     U1     U2             steps of the update, each of one stage

Values are numbers. A value is a segment's result for one micro-batch, a variable that lives with one stage, or
a constant of the loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax

from ipu_tf.device.program.program import Arrays, Elements, Hidden, Types
from ipu_tf.device.schedule.timetable import Recomputation, TaskKind


@dataclasses.dataclass(frozen=True)
class StageSegment:
    """Forward or backward pass of a stage for one micro-batch, or the recomputation of its forward pass.

    Attributes:
        kind: forward, backward or recomputation.
        stage: the stage's number.
        run: `(states, hidden, constants, inputs, seeds, elements) -> (outputs, states, hidden, enqueued)`, traceable by
            JAX.
        constants: values that it reads and that no micro-batch changes, such as weights.
        inputs: values of the same micro-batch from other segments.
        outputs: values that other segments, or the update, read.
        states: values that go from one micro-batch to the next, such as moving averages.
        hidden: shape and dtype of each piece of hidden state it uses, other than the seed.
        draws: which of the micro-batch's random draws it makes.
        infeeds: element types of the infeeds it dequeues one element from.
        outfeeds: element types of the outfeeds it enqueues one element to.
    """

    kind: TaskKind
    stage: int
    run: Callable[..., tuple[Arrays, Arrays, Hidden, Elements]]
    constants: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    states: tuple[int, ...]
    hidden: Mapping[str, jax.ShapeDtypeStruct]
    draws: tuple[int, ...]
    infeeds: Mapping[str, Types]
    outfeeds: Mapping[str, Types]


@dataclasses.dataclass(frozen=True)
class UpdateStep:
    """Part of the weight update that runs on one stage's device, after the parts that it depends on.

    Attributes:
        stage: the stage's number.
        run: `(taken, kept) -> (outputs, enqueued)`, traceable by JAX: values by number; the first
            are donated.
        inputs: values it reads.
        taken: those of them that are not read afterwards.
        outputs: values that other parts read, or new values of variables.
        outfeeds: element types of the outfeeds it enqueues one element to.
    """

    stage: int
    run: Callable[[Mapping[int, Any], Mapping[int, Any]], tuple[Arrays, Elements]]
    inputs: tuple[int, ...]
    taken: frozenset[int]
    outputs: tuple[int, ...]
    outfeeds: Mapping[str, Types]


@dataclasses.dataclass(frozen=True)
class StageProgram:
    """Pipelined loop, cut into stages.

    Attributes:
        mapping: the device of each stage.
        schedule: the number of its schedule.
        training: whether micro-batches go backward, and the weights are updated.
        count: how many micro-batches make one run of the schedule; 0, in inference, for as many as there are.
        segments: in the order in which a micro-batch passes them, and after these the repeated forward passes.
        updates: in an order in which they can run.
        carried: the value of each value that the loop carries.
        outer: the value of each other value that the loop reads.
        homes: the stage that a carried value, or another one, lives with; one that several read has none.
        written: from a variable's value to the value that the update gives it.
        accumulators: from a value that is a piece of hidden state to its segment's index and key.
        draws: how many random draws a micro-batch makes.
        recomputation: how backward passes get activations.
    """

    mapping: tuple[int, ...]
    schedule: int
    training: bool
    count: int
    segments: tuple[StageSegment, ...]
    updates: tuple[UpdateStep, ...]
    carried: tuple[int, ...]
    outer: tuple[int, ...]
    homes: Mapping[int, int]
    written: Mapping[int, int]
    accumulators: Mapping[int, tuple[int, str]]
    draws: int
    recomputation: Recomputation = Recomputation.NONE

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.mapping)

    def only_readers(self) -> dict[int, int]:
        """The stage of each value without a home that one stage alone reads, such as a weight that is not trained."""
        read: dict[int, set[int]] = {}
        for each in self.segments:
            for value in each.constants:
                read.setdefault(value, set()).add(each.stage)
        for step in self.updates:
            for value in step.inputs:
                read.setdefault(value, set()).add(step.stage)
        return {value: min(stages) for value, stages in read.items() if len(stages) == 1}

    @property
    def devices(self) -> int:
        """Number of devices that the mapping needs."""
        return max(self.mapping) + 1
