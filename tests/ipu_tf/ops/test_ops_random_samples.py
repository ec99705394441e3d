"""Gamma, Poisson and binomial distributions on the device: moments, seeds and gradients are TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu_tf._ops.random_samples import stateless_random_gamma_v3
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

COUNT = 20_000
SHAPE = (COUNT, 3)
RATES = np.array([0.4, 2.0, 9.0], np.float32)
SHARES = np.array([0.1, 0.5, 0.8], np.float32)
Sampler = Callable[[Any], tf.Tensor]
STATELESS: dict[str, Sampler] = {
    "gamma": lambda seed: tf.random.stateless_gamma(SHAPE, seed, RATES, beta=2.0),
    "poisson": lambda seed: tf.random.stateless_poisson(SHAPE, seed, RATES, tf.float32),
    "binomial": lambda seed: tf.random.stateless_binomial(SHAPE, seed, 12.0, SHARES, tf.float32),
}
STATEFUL: dict[str, Callable[[], tf.Tensor]] = {
    "gamma": lambda: tf.random.gamma([COUNT], RATES, 2.0),
    "poisson": lambda: tf.random.poisson([COUNT], RATES),
}


def _on_device(strategy: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    with device_work() as work:
        result = strategy.run(tf.function(function), args=arguments)
    assert work.counts.executions == 1
    return result


def _assert_same_distribution(ours: Any, wanted: Any) -> None:
    """Compares sorted samples: both estimate the same quantiles."""
    ours, wanted = np.sort(ours, 0), np.sort(wanted, 0)
    assert ours.shape == wanted.shape == SHAPE
    spread = wanted.std(0)
    np.testing.assert_allclose(ours.mean(0), wanted.mean(0), atol=6 * spread.max() / COUNT**0.5)
    inner = slice(COUNT // 50, -COUNT // 50, COUNT // 100)
    assert (np.abs(ours[inner] - wanted[inner]).mean(0) < 0.1 * spread).all()


@pytest.mark.parametrize("name", STATELESS)
def test_seeded_samples(strategy: Any, name: str) -> None:
    sample, seed = STATELESS[name], tf.constant([3, 5], tf.int32)
    ours = _on_device(strategy, sample, seed)
    _assert_same_distribution(ours, sample(seed))
    np.testing.assert_array_equal(ours, _on_device(strategy, sample, seed))
    assert not np.array_equal(ours, _on_device(strategy, sample, tf.constant([3, 6], tf.int32)))


@pytest.mark.parametrize("name", STATEFUL)
def test_samples_of_the_seed_of_the_device(strategy: Any, name: str) -> None:
    tf.random.set_seed(7)
    sample = STATEFUL[name]
    ours, again = _on_device(strategy, sample), _on_device(strategy, sample)
    _assert_same_distribution(ours, sample())
    assert not np.array_equal(ours, again)
    tf.random.set_seed(7)
    np.testing.assert_array_equal(ours, _on_device(strategy, sample))


def test_the_gradient_by_the_shape_of_a_gamma_distribution(strategy: Any) -> None:
    def gradient(alpha: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(alpha)
            loss = tf.reduce_mean(tf.random.stateless_gamma(SHAPE, [1, 2], alpha), 0)
        return tape.gradient(loss, alpha)

    alpha = tf.constant(RATES)
    ours = _on_device(strategy, gradient, alpha)
    # The mean of a gamma distribution is alpha, so the gradient of the mean is 1.
    np.testing.assert_allclose(ours, gradient(alpha), atol=0.05)
    np.testing.assert_allclose(ours, 1.0, atol=0.05)


def test_all_words_of_key_and_counter_of_a_gamma_distribution_count(strategy: Any) -> None:
    """Also where the words, taken together by exclusive or, are equal."""

    def sample(key: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
        return stateless_random_gamma_v3([5], key, counter, alg=1, alpha=tf.ones([5]))

    seeds = [([9], [5, 5]), ([9], [6, 6]), ([5], [9, 5]), ([5], [5, 9]), ([9], [0, 0]), ([9 << 32], [0, 0])]
    found = [_on_device(strategy, sample, *(tf.constant(part, tf.uint64) for part in seed)) for seed in seeds]
    assert len({samples.numpy().tobytes() for samples in found}) == len(seeds)
