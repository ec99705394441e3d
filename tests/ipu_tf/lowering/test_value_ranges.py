"""Checks of indices stay where integers wrap around: a range that is known is known for all that a program can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu_tf.lowering.programs.build import build_program
from ipu_tf.lowering.stablehlo.check_markers import checks_of
from ipu_tf.lowering.tensorflow import tf_private
from ipu_tf.lowering.tensorflow.trace import lower
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

Loop = Callable[[tf.Tensor, tf.Tensor], Any]


def _array(x: tf.Tensor) -> tf.TensorArray:
    return tf.TensorArray(tf.float32, x.shape[0], clear_after_read=False).unstack(x)


def _while(goes_on: Callable[[Any], Any], following: Callable[[Any], Any], index: Callable[[Any], Any]) -> Loop:
    """Returns a loop of at most 40 steps, which adds up elements at an index that is made of a counter."""

    def loop(x: tf.Tensor, first: tf.Tensor) -> Any:
        array = _array(x)
        return tf.while_loop(
            lambda k, n, s: tf.logical_and(goes_on(k), n < 40),
            lambda k, n, s: (following(k), n + 1, s + array.read(index(k))),
            [first, 0, 0.0],
        )[2]

    return loop


def _of_range(count: int, step: int, index: Callable[[Any], Any]) -> Loop:
    def loop(x: tf.Tensor, first: tf.Tensor) -> Any:
        array, more = _array(x), tf.constant(step, first.dtype)
        return tf.while_loop(
            lambda n, k, s: n < count, lambda n, k, s: (n + 1, k + more, s + array.read(index(k))), [0, first, 0.0]
        )[2]

    return loop


def _narrow(value: Any) -> Any:
    return tf.cast(tf.cast(value, tf.int8), tf.int32)


#: A loop, the first value of its counter, and how many elements there are to read: the counter wraps around.
WRAPS: dict[str, tuple[Loop, Any, int]] = {
    "int32": (_of_range(4, 2**30, lambda k: tf.minimum(k, 9)), np.int32(0), 10),
    "int8": (_of_range(4, 100, lambda k: tf.cast(k, tf.int32)), np.int8(0), 1000),
    "downwards": (_of_range(6, -(2**30), lambda k: tf.maximum(k, 0)), np.int32(0), 1),
    "a counter cut to int8": (
        _while(lambda k: k < 200, lambda k: _narrow(k + 1), lambda k: k),
        np.int32(100),
        200,
    ),
    "a condition of the cut counter": (
        _while(lambda k: tf.cast(k, tf.int8) < 100, lambda k: k + 60, lambda k: k),
        np.int32(90),
        105,
    ),
    "steps beyond the greatest integer": (
        _while(lambda k: k < 2**31 - 1, lambda k: k + 2**30, lambda k: tf.minimum(k, 9)),
        np.int32(0),
        10,
    ),
    "to the greatest integer": (
        _while(lambda k: k <= 127, lambda k: k + 1, lambda k: tf.cast(k, tf.int32)),
        np.int8(120),
        128,
    ),
    "a floor that is passed": (
        _while(lambda k: k >= -(2**31) + 1, lambda k: k - 2**30 - 1, lambda k: tf.maximum(k, 0)),
        np.int32(0),
        1,
    ),
}
#: Loops as above whose index stays in range.
IN_RANGE: dict[str, tuple[Loop, Any, int]] = {
    "upwards": (_of_range(4, 3, lambda k: k), np.int32(0), 10),
    "downwards": (_of_range(4, -3, lambda k: k), np.int32(9), 10),
    "int8": (_of_range(4, 3, lambda k: tf.cast(k, tf.int32)), np.int8(0), 10),
    "while": (_while(lambda k: k < 10, lambda k: k + 4, lambda k: k), np.int32(1), 10),
    "while, downwards": (_while(lambda k: k >= 0, lambda k: k - 4, lambda k: k), np.int32(9), 10),
}


def _numbers(count: int) -> tf.Tensor:
    return tf.range(count, dtype=tf.float32)


@pytest.mark.parametrize("name", WRAPS)
def test_a_counter_that_wraps_around_is_checked(strategy: Any, name: str) -> None:
    loop, first, count = WRAPS[name]
    step = tf.function(lambda x: loop(x, tf.constant(first)), autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="list with"):
        step(_numbers(count))
    with pytest.raises(tf.errors.InvalidArgumentError, match="list with"):
        strategy.run(step, (_numbers(count),))


@pytest.mark.parametrize("name", IN_RANGE)
def test_a_counter_in_range_costs_nothing(strategy: Any, name: str) -> None:
    loop, first, count = IN_RANGE[name]
    step = tf.function(lambda x: loop(x, tf.constant(first)), autograph=False, jit_compile=True)
    x = _numbers(count)
    with device_work() as did:
        ours = strategy.run(step, (x,))
    assert did.counts.executions == 1
    assert float(ours) == float(loop(x, tf.constant(first)))
    module = lower(tf_private.concrete_function(step, tf.TensorSpec(x.shape, x.dtype))).module
    assert checks_of(module)  # without the ranges there is one
    assert not build_program(module).checks
