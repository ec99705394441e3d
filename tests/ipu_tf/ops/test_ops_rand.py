"""Dropout: masks, seeds and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops import rand_ops
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.ops_parity import on_device, with_gradients

Strategy = ipu.ipu_strategy.IPUStrategyV1
ONES = np.ones((50, 40), np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.75])
def test_keeps_and_scales(strategy: Strategy, rate: float, dtype: type) -> None:  # noqa: F811
    result = on_device(strategy, lambda x: rand_ops.dropout(4 * x, rate), ONES.astype(dtype))
    assert result.dtype == dtype
    kept = result[result != 0]
    np.testing.assert_array_equal(kept, np.full_like(kept, 4 / (1 - rate)))
    # Four standard deviations of a share of two thousand.
    assert abs(len(kept) / result.size - (1 - rate)) <= 0.045


@pytest.mark.parametrize("seed", [None, (3, -4)])
def test_the_backward_pass_has_the_mask_of_the_forward_pass(strategy: Strategy, seed: Any) -> None:  # noqa: F811
    [result], [gradient] = on_device(strategy, with_gradients(lambda x: rand_ops.dropout(x, 0.4, seed=seed)), ONES)
    weights = np.linspace(0.5, 1.5, ONES.size).reshape(ONES.shape)
    np.testing.assert_allclose(gradient, result * weights, rtol=1e-6)


def test_a_seed_gives_the_same_mask_everywhere(strategy: Strategy) -> None:  # noqa: F811
    def function(x: tf.Tensor, seed: tf.Tensor) -> list[tf.Tensor]:
        return [rand_ops.dropout(x, seed=seed), rand_ops.dropout(x, seed=seed), rand_ops.dropout(x, seed=seed + 1)]

    seed = np.array([7, -9], np.int32)
    first, again = (on_device(strategy, function, ONES, seed) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[0], first[1])
    assert not np.array_equal(first[0], first[2])


def test_without_a_seed_every_op_and_execution_and_step_has_another_mask(strategy: Strategy) -> None:  # noqa: F811
    def function(x: tf.Tensor) -> list[tf.Tensor]:
        steps = tf.map_fn(lambda _: rand_ops.dropout(x), tf.range(3), tf.float32)
        return [rand_ops.dropout(x), rand_ops.dropout(x), *tf.unstack(steps)]

    masks = [mask for _ in range(2) for mask in on_device(strategy, function, ONES)]
    assert len({mask.tobytes() for mask in masks}) == 10


def test_the_seed_drawn_is_told_and_draws_the_same_mask(strategy: Strategy) -> None:  # noqa: F811
    def function(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        first, seed = rand_ops.dropout_and_seed(x, 0.5, 2.0)
        again, same = rand_ops.dropout_and_seed(x, 0.5, 2.0, seed=seed)
        return first, again, seed, same

    first, again, seed, same = on_device(strategy, function, ONES)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(seed, same)
    assert (seed.shape, seed.dtype) == ((2,), np.int32)


def test_a_reset_seed_repeats_the_masks(strategy: Strategy) -> None:  # noqa: F811
    runs = []
    for _ in range(2):
        ipu.utils.reset_ipu_seed(5)
        runs.append([on_device(strategy, rand_ops.dropout, ONES) for _ in range(2)])
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0][0], runs[0][1])


@pytest.mark.parametrize("noise_shape", [(50, 1), (1, 40), (50, 40), (1, 1)])
def test_noise_shape(strategy: Strategy, noise_shape: tuple[int, int]) -> None:  # noqa: F811
    result = on_device(strategy, lambda x: rand_ops.dropout(x, noise_shape=noise_shape), ONES)
    for axis, length in enumerate(noise_shape):
        if length == 1:
            first = np.take(result, [0], axis=axis)
            np.testing.assert_array_equal(result, np.broadcast_to(first, result.shape))
    if noise_shape != (1, 1):
        assert 0 < np.count_nonzero(result) < result.size


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"rate": 1.0}, r"The rate must be in the range \[0, 1\), but was 1.0"),
    ({"rate": -0.5}, r"The rate must be in the range \[0, 1\), but was -0.5"),
    ({"noise_shape": [50]}, "The length of noise_shape must equal the rank of x."),
    ({"noise_shape": [50, 8]}, "Dimension mismatch, 40 != 8."),
    ({"seed": [1, 2, 3]}, r"Expected the seed to have a shape \[2\], but got \(3,\)."),
]


@pytest.mark.parametrize(("options", "text"), ERRORS)
def test_bad_arguments_of_dropout_raise(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        rand_ops.dropout(ONES, **options)


def test_ref_is_recorded_and_nothing_else_is_taken() -> None:
    rand_ops.dropout(ONES, ref=False)
    assert "dropout.ref" in [item.name for item in ipu.emulation.ignored_arguments()]
    with pytest.raises(TypeError, match="unexpected keyword argument 'referenz'"):
        rand_ops.dropout(ONES, referenz=False)
