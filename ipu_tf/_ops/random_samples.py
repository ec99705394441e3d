"""Gamma, Poisson and binomial distributions in programs: XLA has no kernels for TensorFlow's ops.

Samples are those of `jax.random` for the op's seed: the same distributions as TensorFlow's, other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.tensorflow.markers import marker
from ipu_tf.lowering.tensorflow.tf_values import inferred_shape
from ipu_tf.ops.rand_ops import new_seed

RANDOM_SAMPLE = "ipu.random_sample"


def stateless_random_gamma_v3(
    shape: Any, key: Any, counter: Any, alg: Any, alpha: Any, name: str | None = None
) -> tf.Tensor:
    """Samples as `tf.raw_ops.StatelessRandomGammaV3`; the arguments are its.

    Args:
        shape: of the result, known when the program is made.
        key: uint64 of shape (1).
        counter: uint64 of shape (2).
        alg: TensorFlow's generator, which the device does not use.
        alpha: of the last dimensions of `shape`.
        name: of the op.
    """
    with tf.name_scope(name or "StatelessRandomGammaV3"):
        seed = tf.reshape(tf.bitcast(tf.concat([key, counter[:2]], 0), tf.int32), [-1])
        return _gamma(_static(shape, "StatelessRandomGammaV3"), seed, tf.convert_to_tensor(alpha))


def random_gamma(shape: Any, alpha: Any, seed: int = 0, seed2: int = 0, name: str | None = None) -> tf.Tensor:
    """Samples as `tf.raw_ops.RandomGamma`, from the seed of the device; the arguments are its."""
    with tf.name_scope(name or "RandomGamma"):
        alpha = tf.convert_to_tensor(alpha)
        return _gamma(_static(shape, "RandomGamma").concatenate(alpha.shape), new_seed(), alpha)


def stateless_random_poisson(shape: Any, seed: Any, lam: Any, dtype: Any, name: str | None = None) -> tf.Tensor:
    """Samples as `tf.raw_ops.StatelessRandomPoisson`; the arguments are its."""
    with tf.name_scope(name or "StatelessRandomPoisson"):
        return _sample("poisson", _static(shape, "StatelessRandomPoisson"), seed, [lam], dtype)


def random_poisson_v2(
    shape: Any, rate: Any, seed: int = 0, seed2: int = 0, dtype: Any = tf.int64, name: str | None = None
) -> tf.Tensor:
    """Samples as `tf.raw_ops.RandomPoissonV2`, from the seed of the device; the arguments are its."""
    with tf.name_scope(name or "RandomPoissonV2"):
        rate = tf.convert_to_tensor(rate)
        whole = _static(shape, "RandomPoissonV2").concatenate(rate.shape)
        return _sample("poisson", whole, new_seed(), [rate], dtype)


def stateless_random_binomial(
    shape: Any, seed: Any, counts: Any, probs: Any, dtype: Any = tf.int64, name: str | None = None
) -> tf.Tensor:
    """Samples as `tf.raw_ops.StatelessRandomBinomial`; the arguments are its."""
    with tf.name_scope(name or "StatelessRandomBinomial"):
        return _sample("binomial", _static(shape, "StatelessRandomBinomial"), seed, [counts, probs], dtype)


def _gamma(shape: tf.TensorShape, seed: tf.Tensor, alpha: tf.Tensor) -> tf.Tensor:
    """Samples whose gradient by alpha is TensorFlow's."""

    @tf.custom_gradient
    def sample(alpha: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        drawn = _sample("gamma", shape, seed, [alpha], alpha.dtype)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            partial = tf.raw_ops.RandomGammaGrad(alpha=tf.broadcast_to(alpha, shape), sample=drawn)
            return tf.reduce_sum(upstream * partial, list(range(shape.rank - alpha.shape.rank)))

        return drawn, gradient

    result: tf.Tensor = sample(alpha)
    return result


def _sample(distribution: str, shape: tf.TensorShape, seed: Any, parameters: list[Any], dtype: Any) -> tf.Tensor:
    wide = [tf.cast(tf.broadcast_to(parameter, shape), tf.float32) for parameter in parameters]
    seed = tf.cast(tf.convert_to_tensor(seed), tf.int32)
    spec = tf.TensorSpec(shape, tf.float32)
    [sampled] = marker(RANDOM_SAMPLE, [seed, *wide], [spec], distribution=distribution)
    return tf.cast(sampled, dtype)


SAMPLES: dict[str, Callable[..., tf.Tensor]] = {
    "random_gamma": random_gamma,
    "random_poisson_v2": random_poisson_v2,
    "stateless_random_gamma_v3": stateless_random_gamma_v3,
    "stateless_random_poisson": stateless_random_poisson,
    "stateless_random_binomial": stateless_random_binomial,
}
"""By name of TensorFlow's raw op."""


def _static(shape: Any, op: str) -> tf.TensorShape:
    known = inferred_shape(shape)
    if not known.is_fully_defined():
        raise ValueError(f"{op} on the device needs a shape that is known when the program is made. Received: {known}.")
    return known
