"""`StageTimes` and `StageCosts`: time and bytes of each stage."""

from __future__ import annotations

import dataclasses

from ipu_tf.device.schedule.timetable import Task, TaskKind


@dataclasses.dataclass(frozen=True)
class StageTimes:
    """Durations of a stage's passes of one micro-batch, in any unit that is the same for all stages.

    Attributes:
        forward: the forward pass. The default of 1 makes it the unit.
        backward: the backward pass; twice the forward pass by default, as it makes gradients of both inputs and
            weights.
        recompute: the repeated forward pass.
        update: the weight update, once an execution; 0 by default, as it does not depend on the schedule.
    """

    forward: float = 1.0
    backward: float = 2.0
    recompute: float = 1.0
    update: float = 0.0

    def of(self, task: Task) -> float:
        """Duration of a task of this stage."""
        times = {
            TaskKind.FORWARD: self.forward,
            TaskKind.BACKWARD: self.backward,
            TaskKind.RECOMPUTE: self.recompute,
            TaskKind.UPDATE: self.update,
        }
        return times[task.kind]


@dataclasses.dataclass(frozen=True)
class StageCosts:
    """Costs of a stage: time, bytes of weights and activations; activations are those of one micro-batch.

    Attributes:
        flops: floating-point operations of its forward pass.
        parameters: how many numbers its trained variables have.
        parameter_bytes: bytes of its variables.
        input_bytes: bytes it receives: kept from the forward to the backward pass.
        activation_bytes: bytes its forward pass makes and its backward pass needs, the input not counted.
        checkpoint_bytes: of those, bytes that are kept where the others are recomputed.
        segment_bytes: the most activation bytes between two checkpoints: what is there at once when recomputation is
            part of the backward pass. None if it has no checkpoints: all of `activation_bytes`.
        training_bytes: bytes it has beside its variables in training: gradient accumulators, the optimizer's state.
        layers: the names of its layers.
    """

    flops: float = 0.0
    parameters: int = 0
    parameter_bytes: int = 0
    input_bytes: int = 0
    activation_bytes: int = 0
    checkpoint_bytes: int = 0
    segment_bytes: int | None = None
    training_bytes: int = 0
    layers: tuple[str, ...] = ()

    def resident_bytes(self, training: bool) -> int:
        """Bytes that are there all the time."""
        return self.parameter_bytes + (self.training_bytes if training else 0)
