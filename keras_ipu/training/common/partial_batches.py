"""Runs executions whose data has batches of other sizes, or too few batches for a weight update.

    batches          8 8 8 8 | 8 8 8 8 | 8 8 3        4 micro-batches an update
    the device runs  loop of 8 steps   | remainder    a program of its own: one update, a mean over its 19 samples

`docs/partial_batches.md` tells users about it.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._config.state import graphcore_rules
from ipu_tf._loops.batch_feed import BatchFeed
from ipu_tf._loops.step_loop import StepLoopResult
from ipu_tf._state.once import first_time
from keras_ipu.training.common.step_split import StepSplit

_log = logging.getLogger("ipu_tf")


@dataclasses.dataclass(frozen=True)
class ExecutedSteps:
    """Consecutive steps that an execution ran, either full ones in a loop or a remainder, with their outputs.

    Attributes:
        outputs: what the loop returned; for a remainder, a tuple of the outputs of each of its batches.
        remainder: whether the steps were a remainder.
    """

    outputs: Any
    remainder: bool = False


def sizes_vary() -> bool:
    """Returns whether Keras data may have batches of several sizes: unless Graphcore's rules hold."""
    return not graphcore_rules()


def run_execution(
    feed: BatchFeed,
    steps: int,
    replicas: int,
    state: Any,
    run_loop: Callable[[Any, int], StepLoopResult],
    run_remainder: Callable[[Any, list[Any]], StepLoopResult],
) -> tuple[StepLoopResult, list[ExecutedSteps]]:
    """Runs up to `steps` steps: full ones in a loop, remainders each in a program of its own.

    Args:
        feed: gives the batches.
        steps: steps to run, for each replica.
        replicas: how many batches a step takes.
        state: what the first step begins with.
        run_loop: runs up to so many steps on full batches, from a state.
        run_remainder: runs one step, or one weight update, on some batches; its outputs are those of each batch.

    Returns:
        Steps, final state and error of all, with the outputs of the last part; and the outputs in parts.
    """
    done, parts = StepLoopResult(0, state, None), []
    started = False
    while True:
        if not feed.at_remainder:
            ran = _or_error(started, done, functools.partial(run_loop, done.state, steps - done.steps))
            started = True
            parts += [ExecutedSteps(ran.outputs)] if ran.steps else []
            done = dataclasses.replace(ran, steps=done.steps + ran.steps)
            if done.error is not None or done.steps >= steps:
                return done, parts
        batches = feed.take_remainder()
        if not batches:
            return done, parts
        ran = _or_error(started, done, functools.partial(run_remainder, done.state, batches))
        started = True
        parts += [ExecutedSteps(ran.outputs, remainder=True)] if ran.steps else []
        done = dataclasses.replace(ran, steps=done.steps + -(-len(batches) // replicas) * ran.steps)
        if done.error is not None or done.steps >= steps or len(batches) < feed.group:
            return done, parts  # fewer than a group are the last


def _or_error(started: bool, done: StepLoopResult, run: Callable[[], StepLoopResult]) -> StepLoopResult:
    """Runs a part; an error after the first part is that of a result, lest the state of the parts before be lost."""
    try:
        return run()
    except BaseException as error:
        if not started:
            raise
        return dataclasses.replace(done, steps=0, error=error)


def gradient_weights(batches: Sequence[Any], split: StepSplit) -> list[float]:
    """Returns the factors of the gradients of a remainder's batches in its weight update.

    The update is a mean over samples, times what an update of full batches is of theirs: with "SUM", the number of
    micro-batches.

    Args:
        batches: of a remainder.
        split: of full steps.

    >>> import numpy as np
    >>> gradient_weights([np.zeros((6, 2)), np.zeros((2, 2))], StepSplit(accumulation_count=4, reduction="MEAN"))
    [0.75, 0.25]
    """
    sizes = [batch_size(batch) for batch in batches]
    whole = split.accumulation_count if split.reduction == "SUM" else 1
    return [whole * size / max(1, sum(sizes)) for size in sizes]


class GradientSum:
    """Weighted sum of the gradients of a remainder's batches.

    Args:
        weights: the factor of each batch's gradients; see `gradient_weights`.
        scaled: multiplies a gradient by a factor.

    >>> total = GradientSum([0.75, 0.25], lambda gradient, weight: gradient * weight)
    >>> total.add([4.0, None])
    >>> total.add([8.0, 2.0])
    [5.0, 0.5]
    """

    def __init__(self, weights: list[float], scaled: Callable[[Any, float], Any]) -> None:
        self._weights = weights
        self._scaled = scaled
        self._sums: list[Any] = []
        self._batches = 0

    def add(self, gradients: list[Any]) -> list[Any] | None:
        """Adds a batch's gradients, None where it has none; returns the sums after the last batch, None before."""
        if self._weights == [1.0]:
            return gradients
        weight = self._weights[self._batches]
        scaled = [None if each is None else self._scaled(each, weight) for each in gradients]
        pairs = zip(self._sums or [None] * len(scaled), scaled, strict=True)
        self._sums = [new if old is None else old if new is None else old + new for old, new in pairs]
        self._batches += 1
        return self._sums if self._batches == len(self._weights) else None


def batch_size(batch: Any) -> int:
    """Returns the number of samples in a batch: the first dimension of its first array that has one; 1 if none has.

    >>> import numpy as np
    >>> batch_size((np.float32(0), np.zeros((5, 2))))
    5
    """
    shapes = (leaf.shape for leaf in tf.nest.flatten(batch) if leaf is not None)
    return next((int(shape[0]) for shape in shapes if len(shape)), 1)


def log_remainder(name: str, sizes: tuple[int, ...]) -> None:
    """Logs once that a program is compiled for a remainder of these batch sizes."""
    if first_time("remainder", name, sizes):
        *others, last = map(str, sizes)
        what = f"a batch of {last} sample{'s' if last != '1' else ''} is computed by a program of its own"
        if others:
            what = (
                f"the last batches, of {', '.join(others)} and {last} samples, are computed by a program of their own"
            )
        _log.info("ipu_tf: %s: %s. See docs/partial_batches.md.", name, what)
