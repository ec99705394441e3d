"""`Timetable`: the tasks of each device at each tick of a pipeline.

A tick ends for all devices together: what a stage made in it reaches the next stage at its end. Several tasks in one
cell run one after the other, in the order in which the cell lists them.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator


class Schedule(enum.IntEnum):
    """Pipeline schedules; the numbers are those of Graphcore's `PipelineSchedule`.

    Attributes:
        GROUPED: a micro-batch starts every tick; a stage goes backward on one and forward on another in the same tick.
        INTERLEAVED: a stage goes forward in one tick and backward in the next, which keeps fewer activations.
        SEQUENTIAL: one stage at a time, as if the model were sharded: a micro-batch starts when the last has finished.
    """

    GROUPED = 0
    INTERLEAVED = 1
    SEQUENTIAL = 2

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"  # which Python 3.11 makes the number

    def __format__(self, specification: str) -> str:
        return format(int(self), specification)


class Recomputation(enum.Enum):
    """Kinds of recomputation: how a backward pass gets its activations.

    Attributes:
        NONE: the forward pass leaves them; they are kept until the backward pass.
        THEN_BACKPROPAGATE: only a stage's input is kept; the tick before a backward pass repeats the forward pass.
        WITH_BACKPROPAGATE: only a stage's input is kept; a backward pass itself repeats the forward pass, part by part
            if the stage has checkpoints.

    With both, the last stage is not recomputed: its backward pass follows at once.
    """

    NONE = "none"
    THEN_BACKPROPAGATE = "recompute then backpropagate"
    WITH_BACKPROPAGATE = "recompute and backpropagate interleaved"


class TaskKind(enum.Enum):
    """Kinds of tasks; the value is the letter in printed timetables."""

    FORWARD = "F"
    RECOMPUTE = "R"
    BACKWARD = "B"
    UPDATE = "U"


@dataclasses.dataclass(frozen=True)
class Task:
    """Task of one stage for one micro-batch.

    Attributes:
        kind: forward pass, its repetition, backward pass, or the weight update.
        stage: the stage's number, from 0.
        micro_batch: the micro-batch's number, from 0; None for the weight update, which belongs to all of them.
    """

    kind: TaskKind
    stage: int
    micro_batch: int | None = None

    @property
    def label(self) -> str:
        """Label of the task: the kind's letter and the micro-batch, such as `B3`; `U` for the weight update."""
        return self.kind.value + ("" if self.micro_batch is None else str(self.micro_batch))


Cell = tuple[Task, ...]


@dataclasses.dataclass(frozen=True)
class Placed:
    """Task with its tick and device in a timetable.

    Attributes:
        task: the task.
        tick: its tick, from 0.
        device: its device.
        position: how many tasks the device does before it in the same tick.
    """

    task: Task
    tick: int
    device: int
    position: int


@dataclasses.dataclass(frozen=True)
class Phases:
    """Phases of a timetable, as half-open ranges of ticks, one after the other.

    Attributes:
        ramp_up: the pipeline fills; stages that no micro-batch has reached are idle.
        steady: the block that the program repeats.
        ramp_down: the pipeline empties; no micro-batch starts.
        update: the weight update's tick; empty in inference.
    """

    ramp_up: range
    steady: range
    ramp_down: range
    update: range

    def named(self) -> tuple[tuple[str, range], ...]:
        """Returns the phases that have at least one tick, with their names."""
        parts = (
            ("ramp-up", self.ramp_up),
            ("steady", self.steady),
            ("ramp-down", self.ramp_down),
            ("update", self.update),
        )
        return tuple((name, ticks) for name, ticks in parts if ticks)


@dataclasses.dataclass(frozen=True)
class Timetable:
    """Timetable of one execution of a pipeline: tasks by tick and device.

    Attributes:
        schedule: the schedule it follows.
        training: whether micro-batches go backward too, and the weights are updated at the end.
        recomputation: how backward passes get activations.
        micro_batches: how many micro-batches the execution takes.
        stage_devices: for each stage the devices it is on; more than one if it is spread over several.
        cells: `[ticks][devices]`, the tasks of a device in a tick in the order it does them; empty if it is idle.
        phases: ramp-up, steady part, ramp-down and update.
    """

    schedule: Schedule
    training: bool
    recomputation: Recomputation
    micro_batches: int
    stage_devices: tuple[tuple[int, ...], ...]
    cells: tuple[tuple[Cell, ...], ...] = dataclasses.field(repr=False)
    phases: Phases

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.stage_devices)

    @property
    def ticks(self) -> int:
        """Number of ticks, including the weight update's."""
        return len(self.cells)

    @property
    def devices(self) -> int:
        """Number of devices, including idle ones."""
        return len(self.cells[0]) if self.cells else 0

    def placed(self) -> Iterator[Placed]:
        """Lists every task with its tick, device and position; once for each device of a stage that is on several."""
        for tick, row in enumerate(self.cells):
            for device, cell in enumerate(row):
                for position, task in enumerate(cell):
                    yield Placed(task, tick, device, position)

    def order(self) -> tuple[Task, ...]:
        """Lists every task once, in an order that respects the timetable, as one worker would run them."""
        return tuple(dict.fromkeys(placed.task for placed in self.placed()))

    def recomputes(self, stage: int) -> bool:
        """Returns whether a stage's forward pass is recomputed for its backward pass."""
        return self.training and self.recomputation is not Recomputation.NONE and stage < self.stages - 1
