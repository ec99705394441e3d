"""`SerialDense`: a dense layer whose matrix product is computed in parts."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

_DIMENSIONS = {
    "input_columns": "a_columns",
    "input_rows_kernel_columns": "a_rows_b_columns",
    "kernel_rows": "b_rows",
}


@keras.saving.register_keras_serializable(package="keras_ipu")
class SerialDense(keras.layers.Dense):
    """A `keras.layers.Dense` whose matrix product is computed in parts; the values are the same.

    Args:
        units: elements of an output.
        serialization_factor: number of parts; must divide the dimension that is divided.
        serialization_dimension: `input_columns` divides the rows of the input, `input_rows_kernel_columns` the
            elements that are summed over, `kernel_rows` the units.
        activation: as for `keras.layers.Dense`, as are all arguments below.
        use_bias: whether a bias is added.
        kwargs: of `keras.layers.Dense`.
    """

    def __init__(
        self,
        units: int,
        serialization_factor: int,
        serialization_dimension: str,
        activation: Any = None,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        input_dim = kwargs.pop("input_dim", None)
        if input_dim is not None and "input_shape" not in kwargs:
            kwargs["input_shape"] = (input_dim,)
        super().__init__(int(units), activation=activation, use_bias=use_bias, **kwargs)
        self.serialization_factor = int(serialization_factor)
        self.serialization_dimension = serialization_dimension

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The activation of the inputs' product with the kernel, plus the bias.

        Raises:
            ValueError: if the product cannot be divided as asked.
        """
        if self.serialization_factor < 1:
            raise ValueError(f"serialization_factor has to be at least 1, but was {self.serialization_factor}.")
        if self.serialization_dimension not in _DIMENSIONS:
            raise ValueError(
                f"Invalid serialization_dimension={self.serialization_dimension}, expected one of: 'input_columns', "
                "'input_rows_kernel_columns', 'kernel_rows'."
            )
        outputs = self._product(inputs)
        if self.bias is not None:
            outputs = outputs + ops.cast(self.bias, outputs.dtype)
        return outputs if self.activation is None else self.activation(outputs)

    def _product(self, inputs: Any) -> Any:
        inputs, kernel = ops.cast(inputs, self.compute_dtype), ops.cast(self.kernel, self.compute_dtype)
        if keras.backend.backend() != "tensorflow":
            return ops.matmul(inputs, kernel)
        from ipu_tf.ops import math_ops

        dimension = _DIMENSIONS[self.serialization_dimension]
        return math_ops.serialized_matmul(inputs, kernel, self.serialization_factor, dimension)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        own = {name: getattr(self, name) for name in ("serialization_factor", "serialization_dimension")}
        return {**super().get_config(), **own}
