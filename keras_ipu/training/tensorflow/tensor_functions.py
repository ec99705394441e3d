"""`TENSORS`: the functions on TensorFlow's tensors that outputs for Keras are made by."""

from __future__ import annotations

import tensorflow as tf

from keras_ipu.training.common.outputs_for_keras import ArrayFunctions


def _mean(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.cast(values, tf.float32) if values.dtype.is_integer else values, 0)


TENSORS = ArrayFunctions(
    tf.nest.map_structure,
    lambda values: list(tf.unstack(values)),
    lambda values: tf.reduce_sum(values, 0),
    _mean,
    tf.reshape,
    lambda *arrays: tf.concat(arrays, 0),
    lambda *arrays: tf.stack(arrays),
    stacks_scalars=True,
)
