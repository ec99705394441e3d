"""The layer that marks activations to be kept."""

from __future__ import annotations

from typing import Any

import keras

from ipu_tf.ops import pipelining_ops


@keras.saving.register_keras_serializable(package="keras_ipu")
class RecomputationCheckpoint(keras.layers.Layer):
    """Gives its input back, and marks it to be stored where a pipeline stage computes its activations again.

    Args:
        kwargs: of `keras.layers.Layer`.
    """

    def call(self, inputs: Any) -> Any:
        """The inputs, whatever their structure. Only with Keras on TensorFlow is anything computed again."""
        if keras.backend.backend() != "tensorflow":
            return inputs
        return pipelining_ops.recomputation_checkpoint(keras.tree.map_structure(keras.ops.convert_to_tensor, inputs))
