"""Loops whose counter comes to the limit of its dtype run as often as TensorFlow's, also where it wraps around."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu_tf.lowering.stablehlo.trip_count import trip_count
from ipu_tf.lowering.tensorflow.tf_private import concrete_function
from ipu_tf.lowering.tensorflow.trace import lower
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
MOST = 300
"""Iterations after which a loop is called endless."""
COMPARISONS = {
    "<": lambda i, limit: i < limit,
    "<=": lambda i, limit: i <= limit,
    "constant >": lambda i, limit: limit > i,
    ">=": lambda i, limit: i >= limit,
    ">": lambda i, limit: i > limit,
}


def cases(dtype: Any) -> list[tuple[int, int, int, str]]:
    """Start, limit, step, comparison: around both limits of a dtype."""
    least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    upwards = [
        (start, most - below, step, comparison)
        for start in (most - 7, most)
        for below in (0, 1, 5)
        for step in (1, 2, 3, most // 2 + 1, most)
        for comparison in ("<", "<=", "constant >")
    ]
    downwards = [
        (least + 7, least + above, step, comparison)
        for above in (0, 1, 5)
        for step in ((-1, -3) if least else (most, most - 2))  # unsigned: what it wraps around to
        for comparison in (">=", ">")
    ]
    return [*upwards, *downwards]


def simulated(dtype: Any, start: int, limit: int, step: int, comparison: str) -> int:
    """Counts the iterations in the arithmetic of a dtype, up to `MOST`."""
    holds, trips = COMPARISONS[comparison], 0
    i, end, by = (np.array(value, dtype) for value in (start, limit, step))
    with np.errstate(over="ignore"):
        while trips < MOST and holds(i, end):
            i, trips = np.add(i, by, dtype=dtype), trips + 1
    return trips


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("comparison", COMPARISONS)
def test_counts_are_those_of_the_dtype_or_unknown(dtype: Any, comparison: str) -> None:
    """One loop for each step; start and limit are given as the loop begins."""
    counted = 0
    for step in sorted({case[2] for case in cases(dtype) if case[3] == comparison}):
        count = trip_count(*_loop(dtype, step, comparison))
        for start, limit, _, _ in (c for c in cases(dtype) if c[2:] == (step, comparison)):
            trips = None if count is None else count([0, 0, np.array(start, dtype), np.array(limit, dtype)])
            if trips is not None:
                assert trips == simulated(dtype, start, limit, step, comparison), (start, limit, step)
                counted += 1
    assert (counted > 0) is (comparison in ("<", "<=", "constant >"))


def _loop(dtype: Any, step: int, comparison: str) -> tuple[Any, Any]:
    """The module of a function of start and limit, and its loop, which carries two values of TensorFlow's and these."""
    holds = COMPARISONS[comparison]

    def looped(start: tf.Tensor, limit: tf.Tensor) -> Any:
        body = lambda i, end: (i + tf.constant(step, dtype), end)  # noqa: E731
        return tf.while_loop(lambda i, end: holds(i, end), body, [start, limit])

    spec = tf.TensorSpec([], dtype)
    module = lower(concrete_function(tf.function(looped, autograph=False, jit_compile=True), spec, spec)).module
    [loop] = [operation for operation in module.main.operations if operation.operation.name == "stablehlo.while"]
    return module, loop.operation


@pytest.mark.parametrize(
    ("dtype", "start", "limit", "step"),
    [(np.int8, 120, 127, 1), (np.uint8, 250, 255, 1), (np.int8, 0, 120, 100), (np.int16, 0, 32766, 20000)],
)
def test_streamed_loops_run_as_often_as_tensorflows(dtype: Any, start: int, limit: int, step: int) -> None:
    """Each ends after 300 iterations, or where the counter has wrapped around to a value beyond its limit."""

    def looped(iterator: Any) -> Any:
        return tf.while_loop(
            lambda i, total, k: tf.logical_and(i <= limit, k < MOST),
            lambda i, total, k: (i + tf.constant(step, dtype), total + next(iterator), k + 1),
            [tf.constant(start, dtype), 0.0, 0],
        )

    dataset = tf.data.Dataset.range(MOST + 1).map(lambda x: tf.cast(x, tf.float32))
    stock = tf.function(looped)(iter(dataset))
    with ipus(1) as strategy, device_work() as did:
        with strategy.scope():
            iterator = iter(dataset)
        ours = strategy.run(tf.function(looped), [iterator])
    assert did.counts.executions == 1
    assert [value.numpy() for value in ours] == [value.numpy() for value in stock]
    assert int(ours[2]) > (limit - start) // step + 1
