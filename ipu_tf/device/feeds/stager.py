"""`Stager`: fills staging buffers from infeeds in a background thread while the device runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType

import numpy as np

from ipu_tf.device.feeds.chunk_reading import ChunkReading, StagedChunk
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.staging import stage_buffers
from ipu_tf.device.feeds.timeout import never
from ipu_tf.device.program.program import LoopPart
from ipu_tf.device.program.replicas import Replicas


class Stager:
    """Stages chunks for one execution of a loop. Context manager: returns unused staged elements at its end.

    If an infeed times out, the chunk is empty and has an `InfeedTimeout` as its error.

    Args:
        infeeds: the loop's infeeds by name.
        capacity: most iterations of a chunk; the buffers may have room for more.
        buffers: two sets of staging buffers to use in turn, from `make_buffers`.
        interrupted: whether Ctrl-C was pressed: a chunk then has the elements that there are.
    """

    def __init__(
        self,
        infeeds: Mapping[str, Infeed],
        capacity: int,
        buffers: list[dict[str, tuple[np.ndarray, ...]]],
        interrupted: Callable[[], bool] = never,
    ) -> None:
        self._infeeds = infeeds
        self._capacity = capacity
        self._buffers = buffers
        self._interrupted = interrupted
        self._turn = 0
        self._reading: ChunkReading | None = None

    @staticmethod
    def make_buffers(part: LoopPart, capacity: int, replicas: Replicas) -> list[dict[str, tuple[np.ndarray, ...]]]:
        """Allocates two sets of staging buffers for a loop."""
        return [{name: stage_buffers(t, capacity, replicas) for name, t in part.infeeds.items()} for _ in range(2)]

    def __enter__(self) -> Stager:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not isinstance(error, KeyboardInterrupt):
                self._return_staged_ahead()
        finally:
            if self._reading is not None:
                self._reading.abandon()

    def take(self, count: int) -> StagedChunk:
        """Returns a chunk of at most `count` iterations: the one staged ahead if there is one, else staged now."""
        if self._reading is None:
            self._reading = self._next_reading(count)
            if any(infeed.may_block for infeed in self._infeeds.values()):
                self._reading.start()
        chunk = self._reading.result(self._interrupted)
        self._reading = None
        return chunk

    def stage_ahead(self, count: int) -> None:
        """Starts to stage the next chunk while the device runs the present one."""
        if count > 0 and self._infeeds and not self._interrupted():
            self._reading = self._next_reading(count)
            self._reading.start()

    def return_unused(self, chunk: StagedChunk, used: int) -> None:
        """Returns the elements of iterations that the loop did not run."""
        if used < chunk.count:
            self._return_staged_ahead()  # they are behind the others
            self._return(chunk, used)

    def take_error(self, error: BaseException) -> None:
        """Has an error that ends the loop raised once; others of the infeeds are raised when they are read again."""
        for infeed in self._infeeds.values():
            infeed.take_error(error)

    def _next_reading(self, count: int) -> ChunkReading:
        buffers = self._buffers[self._turn]
        self._turn = 1 - self._turn
        return ChunkReading(self._infeeds, buffers, min(count, self._capacity))

    def _return_staged_ahead(self) -> None:
        if self._reading is not None:
            chunk = self._reading.result(lambda: True)
            self._reading = None
            self._return(chunk, 0)

    def _return(self, chunk: StagedChunk, first: int) -> None:
        for name, staged in chunk.staged.items():
            self._infeeds[name].return_elements(staged, first)
