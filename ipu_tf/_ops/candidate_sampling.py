"""Candidate samplers of classes that run on the device, where TensorFlow's own have no kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf.ops.rand_ops import new_seed

Candidates = tuple[tf.Tensor, tf.Tensor, tf.Tensor]
_SEEDS = 2**31 - 1
"""TensorFlow's seeds of ops are less."""


def uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Samples classes, each as likely as any other.

    Args:
        true_classes: `[batch, num_true]` whole numbers: the labels.
        num_true: labels for one sample.
        num_sampled: how many classes to sample.
        unique: whether no class is sampled twice.
        range_max: how many classes there are.
        seed: the same seed gives the same classes in every execution; without one, every execution gives others.
        name: of the op.

    Returns:
        The sampled classes, `[num_sampled]` int64; how often each label, `[batch, num_true]`, and each sampled class,
        `[num_sampled]`, is expected in the sample, float32.

    Raises:
        ValueError: if more distinct classes are wanted than there are.
    """
    with tf.name_scope(name or "uniform_candidate_sampler"):
        probabilities = tf.fill([range_max], 1.0 / range_max)
        return _sample(probabilities, true_classes, num_true, num_sampled, unique, seed)


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Samples class k with probability `log((k + 2) / (k + 1)) / log(range_max + 1)`: for classes in falling frequency.

    Args, Returns and Raises as for `uniform_candidate_sampler`.
    """
    with tf.name_scope(name or "log_uniform_candidate_sampler"):
        number = tf.range(1, range_max + 1, dtype=tf.float32)
        probabilities = tf.math.log1p(1 / number) / tf.math.log(tf.cast(range_max + 1, tf.float32))
        return _sample(probabilities, true_classes, num_true, num_sampled, unique, seed)


def _sample(
    probabilities: tf.Tensor, true_classes: Any, num_true: int, count: int, unique: bool, seed: int | None
) -> Candidates:
    classes = probabilities.shape.as_list()[0]
    if unique and count > classes:
        raise ValueError(f"Wanted at most {classes} distinct classes, one each. Received: num_sampled={count}.")
    labels = tf.convert_to_tensor(true_classes)
    labels.shape.assert_is_compatible_with([None, num_true])
    seeds = new_seed() if seed is None else tf.constant([0, seed], tf.int32)
    if unique:
        sampled, tries = _distinct(probabilities, count, seeds)
        expected = -tf.math.expm1(tries * tf.math.log1p(-probabilities))
    else:
        sampled, expected = _independent(probabilities, count, seeds), probabilities * count
    return tf.cast(sampled, tf.int64), tf.gather(expected, labels), tf.gather(expected, sampled)


def _independent(probabilities: tf.Tensor, count: int, seed: tf.Tensor) -> tf.Tensor:
    drawn = tf.random.stateless_uniform([count], seed)
    found = tf.searchsorted(tf.cumsum(probabilities), drawn, side="right")
    return tf.minimum(found, tf.size(probabilities) - 1)


def _distinct(probabilities: tf.Tensor, count: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Samples `count` distinct classes, by the smallest of exponentially distributed times, one for each class.

    The order of arrival is that of the drawing. A class that came has been drawn again, on average, once more for
    every further 1 / probability of time: hence how many draws it took.
    """
    uniform = tf.random.stateless_uniform(probabilities.shape, seed, minval=1e-38)
    arrival = -tf.math.log(uniform) / probabilities
    negative, sampled = tf.math.top_k(-arrival, count)
    again = tf.gather(probabilities, sampled) * (negative - negative[-1])
    return sampled, tf.round(count + tf.reduce_sum(again))


def _as_raw_op(sampler: Callable[..., Candidates]) -> Callable[..., Candidates]:
    """Returns a sampler with the arguments of TensorFlow's raw op."""

    def sampled(
        true_classes: Any,
        num_true: int,
        num_sampled: int,
        unique: bool,
        range_max: int,
        seed: int | None = 0,
        seed2: int | None = 0,
        name: str | None = None,
    ) -> Candidates:
        own = None if _is_global(seed) else _combined(seed or 0, seed2 or 0)
        return sampler(true_classes, num_true, num_sampled, unique, range_max, own, name)

    return sampled


def _is_global(seed: int | None) -> bool:
    """Returns whether the first seed of a raw op is that of `tf.random.set_seed`: every execution draws other numbers.

    The second is then one that the graph has counted, or the op's own; the device's seed is derived from the first.
    """
    given = tf.compat.v1.get_default_graph().seed
    return given is not None and seed == given % _SEEDS


def _combined(seed: int, seed2: int) -> int | None:
    """Returns one seed for the two of a raw op; None for two zeros, which ask for other numbers in every execution."""
    return (seed + seed2) % _SEEDS if seed or seed2 else None


SAMPLERS: dict[str, Callable[..., Candidates]] = {
    "uniform_candidate_sampler": _as_raw_op(uniform_candidate_sampler),
    "log_uniform_candidate_sampler": _as_raw_op(log_uniform_candidate_sampler),
}
"""By name of TensorFlow's raw op."""
