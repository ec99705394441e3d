"""Reduces micro-batch gradients: sum, mean, running mean."""

from __future__ import annotations

from typing import Any

import keras

from ipu_tf import gradient_accumulation


def reduction_named(reduction_method: Any) -> Any:
    """Parses a `GradientAccumulationReductionMethod` or its name in any case.

    Raises:
        ValueError: for anything else.
    """
    return gradient_accumulation.GradientAccumulationReductionMethod.parse(reduction_method)


def add_gradient(total: Any, gradient: Any, position: Any, method: Any, count: int) -> Any:
    """Returns the accumulator with one more gradient added.

    Args:
        total: what it holds now; its dtype is the result's.
        gradient: of this micro-batch.
        position: int32 scalar, 0 for the first micro-batch of an update.
        method: a `GradientAccumulationReductionMethod`.
        count: micro-batches of an update.
    """
    gradient = keras.ops.cast(dense(gradient), total.dtype)
    if method.name == "MEAN":
        # Scaled before they are added, so that float16 does not overflow.
        return total + gradient * keras.ops.cast(1.0 / count, total.dtype)
    if method.name == "RUNNING_MEAN":
        before = keras.ops.cast(position, "float32")
        kept, added = before / (before + 1.0), 1.0 / (before + 1.0)
        return total * keras.ops.cast(kept, total.dtype) + gradient * keras.ops.cast(added, total.dtype)
    return total + gradient


def dense(gradient: Any) -> Any:
    """Converts a gradient to a dense tensor, also an embedding's `tf.IndexedSlices`."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if isinstance(gradient, tf.IndexedSlices):
            return tf.convert_to_tensor(gradient)
    return gradient
