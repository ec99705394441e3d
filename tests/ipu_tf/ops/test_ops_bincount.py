"""`tf.math.bincount` on the device is TensorFlow's, wherever its length does not depend on values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

VALUES = np.array([[1, 3, 3, 0, 7], [2, 2, 2, 5, 9]], np.int32)
WEIGHTS = np.arange(10, dtype=np.float32).reshape(2, 5) / 4
LENGTHS: dict[str, dict[str, Any]] = {
    "both": {"minlength": 6, "maxlength": 6},
    "longer": {"minlength": 12},
    "shorter": {"minlength": 9, "maxlength": 4},
}


WAYS: list[dict[str, Any]] = [{}, {"weights": WEIGHTS}, {"binary_output": True, "dtype": tf.float32}]


def _both(strategy: Any, lengths: dict[str, int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Counts in every way, on the device and on the host."""

    def count(values: tf.Tensor) -> list[tf.Tensor]:
        return [tf.math.bincount(values, axis=axis, **lengths, **way) for way in WAYS for axis in (None, -1)]

    with device_work() as work:
        ours = strategy.run(tf.function(count), args=(tf.constant(VALUES),))
    assert work.counts.executions == 1
    return [(got.numpy(), wanted.numpy()) for got, wanted in zip(ours, count(tf.constant(VALUES)), strict=True)]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_counts_are_tensorflows(strategy: Any, lengths: str) -> None:
    for got, wanted in _both(strategy, LENGTHS[lengths]):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


def test_a_value_beyond_minlength_is_an_error(strategy: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="fills the 8 bins that `minlength` says"):
        _both(strategy, {"minlength": 8})


@pytest.mark.parametrize("lengths", [{}, {"maxlength": 5}])
def test_a_length_that_depends_on_values_is_refused(strategy: Any, lengths: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="how many bins"):
        _both(strategy, lengths)


def test_a_value_below_0_is_an_error(strategy: Any) -> None:
    def count(values: tf.Tensor) -> tf.Tensor:
        return tf.math.bincount(values, minlength=4, maxlength=4)

    values = tf.constant([0, -1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be non-negative"):
        count(values)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be non-negative"):
        strategy.run(tf.function(count), (values,))
