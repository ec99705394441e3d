"""`tf.random.stateless_*` with the numbers of TensorFlow's CPU kernels, from the same Philox bits.

XLA makes other floats of the same bits: of the upper 23 of each 32, where TensorFlow's kernels take the lower 23; and
samples classes by Gumbel's method, where TensorFlow inverts the cumulative distribution.

    seed ──► key, counter ──► Philox bits ──► uniform ──► normal (Box-Muller), dropout
                                         └──► class at a uniform part of the cumulative distribution
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_MANTISSA_BITS = {tf.float32: 23, tf.float16: 10, tf.bfloat16: 7}
_EXPONENT_OF_ONE = {tf.float32: 127, tf.float16: 15, tf.bfloat16: 127}
_PHILOX = tf.random.Algorithm.PHILOX.value
_ALGORITHMS = (None, _PHILOX, tf.random.Algorithm.AUTO_SELECT.value)
_LEAST_UNIFORM = 1e-7
"""TensorFlow's Box-Muller transform takes the logarithm of no smaller number."""


def random_uniform(
    shape: Any, key: Any, counter: Any, alg: Any, dtype: Any = tf.float32, name: str | None = None
) -> tf.Tensor:
    """Draws uniform numbers in [0, 1) as `tf.raw_ops.StatelessRandomUniformV2` does on the CPU, bit for bit.

    Args:
        shape: of the result.
        key: of the generator, `[1]` uint64.
        counter: of the generator, `[2]` uint64.
        alg: number of the algorithm.
        dtype: float32, float16 or bfloat16.
        name: of the op.
    """
    if not _is_of_cpu(dtype, alg):
        return tf.raw_ops.StatelessRandomUniformV2(
            shape=shape, key=key, counter=counter, alg=alg, dtype=dtype, name=name
        )
    with tf.name_scope(name or "StatelessRandomUniformV2"):
        return _unit_interval(_bits(shape, key, counter, alg), tf.as_dtype(dtype))


def random_normal(
    shape: Any, key: Any, counter: Any, alg: Any, dtype: Any = tf.float32, name: str | None = None
) -> tf.Tensor:
    """Draws normal numbers as `tf.raw_ops.StatelessRandomNormalV2` does on the CPU, to rounding.

    The arguments are those of `random_uniform`. Each pair of uniform numbers makes two normal ones.
    """
    if not _is_of_cpu(dtype, alg):
        return tf.raw_ops.StatelessRandomNormalV2(
            shape=shape, key=key, counter=counter, alg=alg, dtype=dtype, name=name
        )
    with tf.name_scope(name or "StatelessRandomNormalV2"):
        shape = tf.convert_to_tensor(shape)
        count = _if_static(tf.reduce_prod(shape))
        pairs = _bits([(count + 1) // 2, 2], key, counter, alg)
        uniform = _unit_interval(pairs, tf.float32)
        radius = tf.sqrt(-2.0 * tf.math.log(tf.maximum(uniform[:, 0], _LEAST_UNIFORM)))
        angle = (2.0 * math.pi) * uniform[:, 1]
        normal = tf.stack([tf.sin(angle) * radius, tf.cos(angle) * radius], axis=1)
        return tf.cast(tf.reshape(tf.reshape(normal, [-1])[:count], shape), dtype)


def multinomial(
    logits: Any, num_samples: Any, seed: Any, output_dtype: Any = tf.int64, name: str | None = None
) -> tf.Tensor:
    """Samples classes as `tf.raw_ops.StatelessMultinomial` does on the CPU in one thread.

    TensorFlow begins each thread's part of the batch at a state of its own: for a large batch of many classes its
    samples depend on the number of threads.

    Args:
        logits: `[batch, classes]`, unnormalised logarithms of probabilities.
        num_samples: how many classes to sample for each.
        seed: two whole numbers.
        output_dtype: int32 or int64.
        name: of the op.

    Returns:
        `[batch, num_samples]` classes.
    """
    with tf.name_scope(name or "StatelessMultinomial"):
        logits = tf.cast(logits, tf.float64)
        batch, classes = tf.unstack(tf.shape(logits))
        key, counter = tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)
        # Two words make one number of 52 bits; as TensorFlow's kernel, which adds up probabilities in float64.
        words = _bits([batch, num_samples, 2], key, counter, _PHILOX)
        upper = tf.cast(tf.bitwise.bitwise_and(words[..., 0], 0xFFFFF), tf.float64)
        uniform = upper * 2.0**-20 + tf.cast(words[..., 1], tf.float64) * 2.0**-52
        finite = tf.math.is_finite(logits)
        largest = tf.reduce_max(tf.where(finite, logits, tf.float64.min), axis=-1, keepdims=True)
        cumulative = tf.cumsum(tf.where(finite, tf.exp(logits - largest), tf.constant(0, tf.float64)), axis=-1)
        wanted = uniform * cumulative[:, -1:]
        below = tf.cast(cumulative[:, None, :] <= wanted[:, :, None], tf.int32)
        return tf.cast(tf.minimum(tf.reduce_sum(below, axis=-1), classes - 1), output_dtype)


DRAWS: dict[str, Callable[..., tf.Tensor]] = {
    "stateless_random_uniform_v2": random_uniform,
    "stateless_random_normal_v2": random_normal,
    "stateless_multinomial": multinomial,
}
"""By name of TensorFlow's raw op."""


def _is_of_cpu(dtype: Any, alg: Any) -> bool:
    """Returns whether TensorFlow's CPU kernels draw numbers of a dtype by an algorithm: Philox, or none chosen."""
    return tf.as_dtype(dtype) in _MANTISSA_BITS and not tf.is_tensor(alg) and alg in _ALGORITHMS


def _bits(shape: Any, key: Any, counter: Any, alg: Any) -> tf.Tensor:
    return tf.raw_ops.StatelessRandomUniformFullIntV2(shape=shape, key=key, counter=counter, alg=alg, dtype=tf.uint32)


def _unit_interval(bits: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Returns numbers in [0, 1): the lower bits become the mantissa of a number in [1, 2), less 1."""
    size = _MANTISSA_BITS[dtype]
    one_to_two = tf.bitwise.bitwise_or(
        tf.bitwise.bitwise_and(bits, (1 << size) - 1), tf.constant(_EXPONENT_OF_ONE[dtype] << size, tf.uint32)
    )
    if dtype.size == 2:
        one_to_two = tf.cast(one_to_two, tf.uint16)
    return tf.bitcast(one_to_two, dtype) - tf.constant(1, dtype)


def _if_static(value: tf.Tensor) -> Any:
    """Returns a tensor's value where it is known as the program is made, or the tensor, for XLA to find it."""
    static = tf.get_static_value(value)
    return value if static is None else static
