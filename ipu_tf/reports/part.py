"""`Part`: operations and values of a part of a program, with the bytes that are alive, as frozen data."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

from ipu_tf.device.run.pipeline_timer import Measured as MeasuredTask
from ipu_tf.device.schedule.timetable import Timetable


class Category(enum.Enum):
    """What a value is to its program."""

    WEIGHTS = "weights"
    """Variables that are trained, where the program knows them."""
    OPTIMIZER = "optimizer state"
    """Variables of a Keras optimizer: moments, number of updates, learning rate."""
    STATE = "other state"
    """Other parameters with a new value after each execution: moving averages, metrics."""
    READ = "read only"
    """Other parameters and constants, which keep their value."""
    ACCUMULATORS = "accumulators"
    """Gradients of micro-batches that are added up."""
    HIDDEN = "hidden state"
    """Seeds, counters and delay lines that the program carries besides its own values."""
    STASHES = "stashes"
    """Activations that forward passes make and gradients read: those of a pipeline's micro-batches too."""
    FEEDS = "feeds"
    """One element of each infeed and outfeed. Staging buffers of the host are not in it."""
    TEMPORARIES = "temporaries"
    """Everything else: activations that no gradient reads, gradients, intermediate results."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A value of a part, in a buffer of its own.

    Attributes:
        name: the operation that makes it, with its scopes; or which parameter, queue or hidden state it is.
        category: what it is to the program.
        bytes: its size on one replica.
        first: index of the operation that makes it; 0 for what is there from the start.
        last: index of the last operation that reads it; the last operation for results and for what is not donated.
    """

    name: str
    category: Category
    bytes: int
    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class Operation:
    """A JAX operation of a part. Calls are replaced by what they call.

    Attributes:
        name: its scopes and its primitive, such as `dense/MatMul/dot_general`.
        live: bytes of each category while it runs.
        inside: of these, the bytes that a loop or branch in it needs at its own peak; they are temporaries.
        trips: how often its body runs, for a loop of known length.
        body: operations of a loop's body, or of the branch with the highest peak. Their `live` is what is made inside.
        branches: operations of each branch, where there are several.
        flops: its floating-point operations, of a loop those of all iterations; once where their number is not known.
            See `ipu_tf.reports.flops.flops_of`.
        bytes_accessed: bytes of the values that it reads and makes; a loop's as its `flops`.
    """

    name: str
    live: Mapping[Category, int]
    inside: int = 0
    trips: int | None = None
    body: tuple[Operation, ...] = ()
    branches: tuple[tuple[Operation, ...], ...] = ()
    flops: float = 0.0
    bytes_accessed: int = 0

    @property
    def total(self) -> int:
        """Bytes that are alive while it runs."""
        return sum(self.live.values())


@dataclasses.dataclass(frozen=True)
class StageMemory:
    """Memory of one stage of a pipeline, as its timetable has it: of one weight update, by tick.

    Attributes:
        stage: its number.
        ipu: the number of its IPU within the replica.
        values: what is there all the time: weights, optimizer state, accumulators and other values that it reads.
        stashes: for each tick the bytes of activations that wait for a later task of the stage.
        temporaries: for each tick the bytes that its tasks make and need for themselves.
        feeds: for each tick the bytes of the elements that its tasks dequeue and enqueue.
    """

    stage: int
    ipu: int
    values: tuple[Value, ...] = dataclasses.field(repr=False)
    stashes: tuple[int, ...] = dataclasses.field(repr=False)
    temporaries: tuple[int, ...] = dataclasses.field(repr=False)
    feeds: tuple[int, ...] = dataclasses.field(repr=False)

    def live(self, tick: int) -> Mapping[Category, int]:
        """Returns the bytes of each category at a tick."""
        found = dict.fromkeys(Category, 0)
        for value in self.values:
            found[value.category] += value.bytes
        found[Category.STASHES] += self.stashes[tick]
        found[Category.TEMPORARIES] += self.temporaries[tick]
        found[Category.FEEDS] += self.feeds[tick]
        return found

    @property
    def resident(self) -> int:
        """Bytes of what is there all the time."""
        return sum(value.bytes for value in self.values)

    @property
    def totals(self) -> tuple[int, ...]:
        """For each tick the bytes of all categories."""
        changing = zip(self.stashes, self.temporaries, self.feeds, strict=True)
        return tuple(self.resident + sum(each) for each in changing)

    @property
    def peak(self) -> int:
        """The most bytes at one tick."""
        return max(self.totals, default=0)

    @property
    def peak_tick(self) -> int:
        """The first tick with the most bytes."""
        return self.totals.index(self.peak) if self.totals else 0


@dataclasses.dataclass(frozen=True)
class Part:
    """Part of a program.

    Attributes:
        kind: "straight line", "loop", or "loop without feeds".
        operations: its operations in order; of a loop those of one iteration.
        values: every value outside of the bodies of loops and branches in it.
        pipeline: the timetable of its stages; None unless it is a pipeline that is cut into stages.
        stages: the memory of these stages; empty where there is no timetable.
        task_times: measured times of the pipeline's tasks, where it ran on several devices and they were asked for.
    """

    kind: str
    operations: tuple[Operation, ...] = dataclasses.field(repr=False)
    values: tuple[Value, ...] = dataclasses.field(repr=False)
    pipeline: Timetable | None = None
    stages: tuple[StageMemory, ...] = dataclasses.field(repr=False, default=())
    task_times: tuple[MeasuredTask, ...] = dataclasses.field(repr=False, default=())

    @property
    def peak(self) -> int:
        """The most bytes that are alive at one operation."""
        return max((each.total for each in self.operations), default=0)

    @property
    def peak_index(self) -> int:
        """Index of the first operation at the peak."""
        return max(range(len(self.operations)), key=lambda index: self.operations[index].total, default=0)

    @property
    def pipeline_totals(self) -> tuple[int, ...]:
        """For each tick of its timetable the bytes of all its stages; empty unless it has a timetable."""
        return tuple(sum(each) for each in zip(*(stage.totals for stage in self.stages), strict=True))

    @property
    def pipeline_peak(self) -> int:
        """The most bytes that all stages need at one tick; 0 unless it has a timetable."""
        return max(self.pipeline_totals, default=0)

    def alive_at(self, index: int) -> tuple[Value, ...]:
        """Returns the values that are alive at an operation, the largest first."""
        alive = (value for value in self.values if value.first <= index <= value.last)
        return tuple(sorted(alive, key=lambda value: -value.bytes))
