"""Reads the outputs of each step of a loop from its outfeed, after the run or while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ipu_tf._loops.batch_feed import BatchFeed
from ipu_tf._loops.output_stream import Arrays, OutputStream
from ipu_tf.device.feeds import connection_type, synthetic
from ipu_tf.device.feeds.outfeed import Outfeed
from ipu_tf.device.feeds.synthetic import TransferKind
from ipu_tf.device.program.program import Types
from ipu_tf.device.program.replicas import Replicas


class StepOutputs:
    """Dequeues the outputs of each step of a loop; zeros under synthetic data.

    Args:
        outfeed: the outfeed.
        types: shape and dtype of each array of a step.
        replicas: of the loop; with several, each array has a leading axis of them.
        all_steps: whether the outputs of all steps are kept, not only the last.
    """

    def __init__(self, outfeed: Outfeed, types: Types, replicas: Replicas, all_steps: bool) -> None:
        self._outfeed = outfeed
        self._types = types
        self._replicas = replicas
        self._all_steps = all_steps

    def forget(self) -> None:
        """Drops the outputs of a run that failed."""
        self._outfeed.drain()

    def of_run(self, steps: int) -> list[Any] | None:
        """Returns the outputs of a run, `[steps, ...]`, or of its last step only; None for no step."""
        arrays = self._outfeed.drain()
        if steps == 0:
            return None
        if not connection_type.attached() or synthetic.uses(TransferKind.OUTFEED):
            arrays = self._zeros(steps if self._all_steps else 1)
        return [array if self._all_steps else array[0] for array in arrays or ()]

    @contextlib.contextmanager
    def watched(self, elements: BatchFeed, take: Callable[[Arrays], None]) -> Iterator[Callable[[int], None]]:
        """Calls a function with each step's outputs within its scope, in order, in a thread; ends after the last.

        What the function raises, `elements.check` raises too, so that the run ends early.

        Args:
            elements: what the loop runs on.
            take: gets the outputs of one step at a time.

        Yields:
            What to call with the number of steps that ran.
        """
        interrupted = elements.check

        def check() -> None:
            interrupted()
            watch.check()

        def ran(steps: int) -> None:
            if not connection_type.attached():
                watch.put_outputs(self._zeros(steps))

        with OutputStream(self._outfeed, lambda outputs: take(self._outputs_or_zeros(outputs))) as watch:
            elements.check = check
            yield ran

    def _outputs_or_zeros(self, outputs: Arrays) -> Arrays:
        return tuple(array[0] for array in self._zeros(1)) if synthetic.uses(TransferKind.OUTFEED) else outputs

    def _zeros(self, count: int) -> Arrays:
        return tuple(np.zeros((count, *self._replicas.with_axis(wanted.shape)), wanted.dtype) for wanted in self._types)
