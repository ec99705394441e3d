"""The layer that marks activations to be kept."""

from __future__ import annotations

from typing import Any

import keras


@keras.saving.register_keras_serializable(package="keras_ipu")
class RecomputationCheckpoint(keras.layers.Layer):
    """Gives its input back. On an IPU it marks activations that are stored where others are computed again.

    Args:
        kwargs: of `keras.layers.Layer`.
    """

    def call(self, inputs: Any) -> Any:
        """The inputs, whatever their structure."""
        return keras.tree.map_structure(keras.ops.convert_to_tensor, inputs)
