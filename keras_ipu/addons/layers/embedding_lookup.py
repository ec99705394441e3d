"""`Embedding` layer of the addons."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from ipu_tf.emulation import record_ignored
from keras_ipu.addons.layers.ipu_layer import IPULayer


@keras.saving.register_keras_serializable(package="keras_ipu")
class Embedding(IPULayer):
    """Embedding layer: looks up rows of a trainable table.

    Input: `[batch, length]` whole numbers from 0 to below `input_dim`. Output: `[batch, length, output_dim]`.

    Args:
        input_dim: rows of the table.
        output_dim: elements of a row.
        embeddings_initializer: of the table.
        embeddings_regularizer: not supported.
        activity_regularizer: not supported.
        embeddings_constraint: not supported.
        mask_zero: not supported.
        input_length: not supported.
        serialization_factor: into how many lookups the IPU divides one; no effect on values.
        kwargs: of `keras.layers.Layer`.

    Raises:
        NotImplementedError: for an argument that is not supported.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        activity_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        input_length: int | None = None,
        serialization_factor: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**kwargs, "autocast": False})
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.serialization_factor = serialization_factor
        record_ignored("Embedding.serialization_factor", serialization_factor if serialization_factor != 1 else None)
        self._check_unsupported(embeddings_regularizer, "embeddings_regularizer")
        self._check_unsupported(activity_regularizer, "activity_regularizer")
        self._check_unsupported(embeddings_constraint, "embeddings_constraint")
        self._check_unsupported(mask_zero, "mask_zero")
        self._check_unsupported(input_length, "input_length")

    def build(self, input_shape: Any) -> None:
        """Creates the table's weight.

        Raises:
            ValueError: if the input does not have two dimensions.
        """
        if len(input_shape) != 2:
            raise ValueError("The input shape should be a tensor of shape [batch, input_length]")
        shape = (self.input_dim, self.output_dim)
        self.embeddings = self.add_weight(shape=shape, initializer=self.embeddings_initializer, name="embeddings")
        self.built = True

    def call(self, inputs: Any, inputs_are_sorted: bool = False, training: bool | None = None) -> Any:
        """The rows of the table at `inputs`.

        Args:
            inputs: whole numbers.
            inputs_are_sorted: whether they are in order, which helps the IPU; no effect on values.
            training: no effect.
        """
        return ops.cast(ops.take(self.embeddings, ops.cast(inputs, "int32"), axis=0), self.compute_dtype)

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """The input's shape with `output_dim` at its end."""
        return (*input_shape, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "serialization_factor": self.serialization_factor,
        }
