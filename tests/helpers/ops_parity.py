"""Runs an op on the device and on the host, with its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.ipu_strategy import IPUStrategyV1
from tests.helpers.device_counts import device_work

Function = Callable[..., Any]


def on_device(strategy: IPUStrategyV1, function: Function, *args: Any) -> Any:
    """The results of one execution on the device, as numpy arrays; fails if it did not run there."""
    with device_work() as work:
        results = strategy.run(tf.function(function, autograph=False), [tf.constant(arg) for arg in args])
    assert work.counts.executions == 1
    return tf.nest.map_structure(np.asarray, results)


def with_gradients(function: Function, *weights: int) -> Function:
    """A function that gives the results of another, and the gradients of a weighted sum of them.

    Args:
        function: of tensors to a tensor or several.
        weights: which arguments the gradients are for; by default all.
    """

    def both(*args: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        chosen = [args[index] for index in weights or range(len(args))]
        with tf.GradientTape() as tape:
            tape.watch(chosen)
            results = tf.nest.flatten(function(*args))
            total = tf.add_n([_weighted(tf.cast(result, tf.float32)) for result in results])
        gradients = tape.gradient(total, chosen, unconnected_gradients="zero")
        return results, [tf.convert_to_tensor(gradient) for gradient in gradients]

    return both


def _weighted(result: tf.Tensor) -> tf.Tensor:
    """A sum in which no two elements have the same weight."""
    weights = tf.reshape(tf.linspace(0.5, 1.5, tf.size(result)), tf.shape(result))
    return tf.reduce_sum(result * weights)


def assert_parity(
    strategy: IPUStrategyV1, function: Function, reference: Function, args: Sequence[Any], rtol: float, *weights: int
) -> None:
    """Asserts that a function, on the device and on the host, gives what a reference gives on the host.

    Args:
        strategy: of the device.
        function: what is tested, of tensors to a tensor or several.
        reference: plain TensorFlow for the same.
        args: arrays.
        rtol: tolerance relative to the largest element.
        weights: which arguments gradients are compared for; by default all.
    """
    wanted = tf.nest.flatten(with_gradients(reference, *weights)(*[tf.constant(arg) for arg in args]))
    here = tf.nest.flatten(with_gradients(function, *weights)(*[tf.constant(arg) for arg in args]))
    there = tf.nest.flatten(on_device(strategy, with_gradients(function, *weights), *args))
    for found in (here, there):
        assert len(found) == len(wanted)
        for got, expected in zip(found, wanted, strict=True):
            assert got.dtype == np.asarray(expected).dtype
            assert_close(np.asarray(got), np.asarray(expected), rtol)


def assert_close(got: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    """Asserts equal shapes, and values equal to within `rtol` of the largest."""
    assert got.shape == expected.shape
    got, expected = got.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * float(finite.max(initial=0)))
