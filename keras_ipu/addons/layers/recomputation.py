"""`RecomputationCheckpoint`: identity layer whose output is stored where a pipeline stage recomputes activations."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops, tree

from ipu_tf.ops import pipelining_ops


@keras.saving.register_keras_serializable(package="keras_ipu")
class RecomputationCheckpoint(keras.layers.Layer):
    """Identity layer that marks its input to be stored where a pipeline stage recomputes activations.

    Args:
        kwargs: of `keras.layers.Layer`.
    """

    def call(self, inputs: Any) -> Any:
        """Returns the inputs, of any structure. Activations are recomputed with Keras on TensorFlow only."""
        if keras.backend.backend() != "tensorflow":
            return inputs
        return pipelining_ops.recomputation_checkpoint(tree.map_structure(ops.convert_to_tensor, inputs))
