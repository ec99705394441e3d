"""`Stager`: fills staging buffers from infeeds in a background thread while the device runs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from types import TracebackType

import numpy as np

from ipu_tf.device.errors import InfeedTimeout
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.staging import Staged, stage_buffers
from ipu_tf.device.feeds.timeout import TimedRead
from ipu_tf.device.program.program import LoopPart
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.device.timeline import span


@dataclasses.dataclass(frozen=True)
class StagedChunk:
    """Staged elements of one chunk of a loop.

    Attributes:
        staged: the elements of each infeed.
        count: iterations that every infeed has an element for.
        error: what ended an infeed early, if one did.
        position: elements that were taken before, of infeeds of which all instances have to be at the same one.
    """

    staged: dict[str, Staged]
    count: int
    error: BaseException | None
    position: int = 0


class Stager:
    """Stages chunks for one execution of a loop. Context manager: returns unused staged elements at its end.

    If an infeed times out, the chunk is empty and has an `InfeedTimeout` as its error.

    Args:
        infeeds: the loop's infeeds by name.
        capacity: most iterations of a chunk; the buffers may have room for more.
        buffers: two sets of staging buffers to use in turn, from `make_buffers`.
    """

    def __init__(
        self, infeeds: Mapping[str, Infeed], capacity: int, buffers: list[dict[str, tuple[np.ndarray, ...]]]
    ) -> None:
        self._infeeds = infeeds
        self._capacity = capacity
        self._buffers = buffers
        self._turn = 0
        self._began_at = 0
        self._reading: TimedRead[StagedChunk] | None = None

    @staticmethod
    def make_buffers(part: LoopPart, capacity: int, replicas: Replicas) -> list[dict[str, tuple[np.ndarray, ...]]]:
        """Allocates two sets of staging buffers for a loop."""
        return [{name: stage_buffers(t, capacity, replicas) for name, t in part.infeeds.items()} for _ in range(2)]

    def __enter__(self) -> Stager:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._reading is not None and not isinstance(error, KeyboardInterrupt):
            with contextlib.suppress(InfeedTimeout):
                self._return(self._reading.result(), 0)

    def take(self, count: int) -> StagedChunk:
        """Returns a chunk of at most `count` iterations: the one staged ahead if there is one, else staged now."""
        if self._reading is None and not any(infeed.may_block for infeed in self._infeeds.values()):
            return self._stage(count)
        reading, self._reading = self._reading or self._started(count), None
        try:
            return reading.result()
        except InfeedTimeout as error:
            # A late element is then written to a buffer that is not read: further executions use the list.
            self._buffers[:] = [{n: tuple(map(np.empty_like, a)) for n, a in each.items()} for each in self._buffers]
            return StagedChunk({n: Staged(a, 0) for n, a in self._buffers[0].items()}, 0, error, self._began_at)

    def stage_ahead(self, count: int) -> None:
        """Starts to stage the next chunk while the device runs the present one."""
        if count > 0 and self._infeeds:
            self._reading = self._started(count)

    def return_unused(self, chunk: StagedChunk, used: int) -> None:
        """Returns the elements of iterations that the loop did not run."""
        if used < chunk.count:
            self._return(chunk, used)

    def _position(self) -> int:
        return sum(infeed.taken for infeed in self._infeeds.values() if infeed.aligned)

    def _started(self, count: int) -> TimedRead[StagedChunk]:
        self._began_at = self._position()
        return TimedRead(list(self._infeeds.values()), self._stage, count)

    def _stage(self, count: int) -> StagedChunk:
        count = min(count, self._capacity)
        position = self._position()
        buffers = self._buffers[self._turn]
        self._turn = 1 - self._turn
        with span("Feeds", "stage"):
            staged = {name: infeed.fill(buffers[name], count) for name, infeed in self._infeeds.items()}
        common = min((s.count for s in staged.values()), default=count)
        for name, s in staged.items():
            if s.count > common:
                self._infeeds[name].return_elements(s, common)
        error = next((s.error for s in staged.values() if s.error is not None), None)
        return StagedChunk(
            {n: dataclasses.replace(s, count=common) for n, s in staged.items()}, common, error, position
        )

    def _return(self, chunk: StagedChunk, first: int) -> None:
        for name, staged in chunk.staged.items():
            self._infeeds[name].return_elements(staged, first)
