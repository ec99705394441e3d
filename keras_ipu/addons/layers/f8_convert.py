"""`ConvertToF8` and `ConvertFromF8`: layers that convert to and from 8-bit floating point, with TensorFlow ops."""

from __future__ import annotations

from typing import Any

import keras

from keras_ipu.addons.layers.ipu_layer import tensorflow_ops


@keras.saving.register_keras_serializable(package="keras_ipu")
class ConvertToF8(keras.layers.Layer):
    """Layer that converts to 8-bit floating point. Takes the arguments of `keras.layers.Layer`."""

    def __call__(self, data: Any, metadata: Any, **kwargs: Any) -> Any:
        # Keras takes nothing but tensors by position, and metadata are a number.
        return super().__call__(data, metadata=metadata, **kwargs)

    def call(self, data: Any, metadata: Any) -> list[Any]:
        """Converts the inputs.

        Args:
            data: floating point numbers.
            metadata: format and scale, as `ipu.ops.f8_ops.create_metadata` gives them.

        Returns:
            The bytes, uint8 of the shape of `data`, and the metadata, a uint8 scalar.
        """
        numbers = tensorflow_ops(self, "f8_ops").convert_to_f8(data, metadata)
        return [numbers.data, numbers.metadata]


@keras.saving.register_keras_serializable(package="keras_ipu")
class ConvertFromF8(keras.layers.Layer):
    """Layer that converts from 8-bit floating point.

    Args:
        dtype: of the result.
        kwargs: of `keras.layers.Layer`.
    """

    def __init__(self, dtype: Any = "float16", **kwargs: Any) -> None:
        super().__init__(dtype=dtype, **kwargs)

    def call(self, inputs: Any) -> Any:
        """Converts the inputs.

        Args:
            inputs: bytes and metadata, as `ConvertToF8` gives them.
        """
        f8_ops = tensorflow_ops(self, "f8_ops")
        return f8_ops.convert_from_f8(f8_ops.QuarterTensor(*inputs), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        config: dict[str, Any] = super().get_config()
        return config
