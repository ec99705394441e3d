"""`Dense` layer for 8-bit floating point inputs and weights."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from keras_ipu.addons.layers.ipu_layer import tensorflow_ops


@keras.saving.register_keras_serializable(package="keras_ipu")
class Dense(keras.layers.Dense):
    """A `keras.layers.Dense` that multiplies in 8-bit floating point if its input is the output of `ConvertToF8`.

    It then has the weights `kernel_data` (uint8), `kernel_metadata` (a uint8 scalar) and `bias` (float16), and gives
    float16.

    Args:
        units: elements of an output.
        kernel_format: an `ipu.ops.f8_ops.Format`, or its value; None for `F143`.
        kernel_scale: the kernel is multiplied by 2 to this power, from -32 to 31.
        kernel_data_initializer: of the kernel's bytes; default: each byte that stands for a number is as likely.
        kwargs: of `keras.layers.Dense`.

    Raises:
        ValueError: for a scale out of range.
    """

    def __init__(
        self,
        units: int,
        kernel_format: Any = None,
        kernel_scale: int = 0,
        kernel_data_initializer: Any = None,
        **kwargs: Any,
    ) -> None:
        if not -32 <= kernel_scale <= 31:
            raise ValueError(f"`kernel_scale` should be in the range [-32, 31]. The passed scale was {kernel_scale}.")
        super().__init__(units, **kwargs)
        self.kernel_format = None if kernel_format is None else int(kernel_format)
        self.kernel_scale = kernel_scale
        self.kernel_data_initializer = keras.initializers.get(kernel_data_initializer)
        self.input_spec = None
        self._takes_bytes = False

    def build(self, input_shape: Any) -> None:
        """Creates the weights, for 8-bit floating point if the input has two parts."""
        self._takes_bytes = bool(input_shape) and isinstance(input_shape[0], list | tuple)
        if not self._takes_bytes:
            super().build(input_shape)
            return
        f8_ops = tensorflow_ops(self, "f8_ops")
        shape = (input_shape[0][-1], self.units)
        data = self.kernel_data_initializer or keras.initializers.Constant(_any_numbers(shape))
        chosen = f8_ops.Format.F143 if self.kernel_format is None else f8_ops.Format(self.kernel_format)
        metadata = keras.initializers.Constant(f8_ops.create_metadata(chosen, self.kernel_scale))
        self.kernel_data = self.add_weight(shape=shape, initializer=data, dtype="uint8", name="kernel_data")
        self.kernel_metadata = self.add_weight(shape=(), initializer=metadata, dtype="uint8", name="kernel_metadata")
        self.bias = self._half_bias() if self.use_bias else None
        self.built = True

    def _half_bias(self) -> Any:
        return self.add_weight(
            shape=(self.units,),
            initializer=self.bias_initializer,
            regularizer=self.bias_regularizer,
            constraint=self.bias_constraint,
            dtype="float16",
            name="bias",
        )

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The activation of the inputs' product with the kernel, plus the bias.

        Args:
            inputs: a tensor, or bytes and metadata as `ConvertToF8` gives them.
            training: no effect.
        """
        if not self._takes_bytes:
            return super().call(inputs)
        f8_ops = tensorflow_ops(self, "f8_ops")
        kernel = f8_ops.QuarterTensor(self.kernel_data.value, self.kernel_metadata.value)
        outputs = f8_ops.f8_matmul(f8_ops.QuarterTensor(*inputs), kernel)
        if self.bias is not None:
            outputs = outputs + keras.ops.cast(self.bias, outputs.dtype)
        return outputs if self.activation is None else self.activation(outputs)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """Returns the shape of `call`'s output."""
        shape = input_shape[0] if input_shape and isinstance(input_shape[0], list | tuple) else input_shape
        return (*shape[:-1], self.units)

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        """Returns shape and dtype of `call`'s output, which is float16 for 8-bit inputs."""
        if not isinstance(inputs, list | tuple):
            return super().compute_output_spec(inputs)
        return keras.KerasTensor(self.compute_output_shape([inputs[0].shape]), "float16")

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {
            **super().get_config(),
            "kernel_format": self.kernel_format,
            "kernel_scale": self.kernel_scale,
            "kernel_data_initializer": keras.initializers.serialize(self.kernel_data_initializer),
        }


def _any_numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Returns random float8 bytes, NaN replaced by zero."""
    drawn = np.random.randint(0, 256, shape)
    return np.where(drawn == 0x80, 0, drawn)
