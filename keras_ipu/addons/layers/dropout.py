"""`Dropout` layer of the addons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ipu_tf.emulation import record_ignored


def dropped(x: Any, rate: float, noise_shape: Sequence[int] | None, seed: Any, generator: Any) -> Any:
    """A tensor with elements dropped at random and the others scaled by `1 / (1 - rate)`.

    Args:
        x: the tensor.
        rate: the share of elements that are dropped.
        noise_shape: the shape of the mask; None for that of `x`.
        seed: two int32 for the same mask each time; None for another one.
        generator: a `keras.random.SeedGenerator` to draw a seed from where there are no IPU ops.
    """
    if keras.backend.backend() == "tensorflow":
        from ipu_tf.ops import rand_ops

        return rand_ops.dropout(x, rate=rate, noise_shape=noise_shape, seed=seed)
    if seed is not None:
        # Keras's stateless seeds are two unsigned numbers, too.
        import numpy as np

        seed = ops.convert_to_tensor(np.asarray(seed, np.int32).astype(np.uint32))
    return keras.random.dropout(x, rate, noise_shape=noise_shape, seed=generator if seed is None else seed)


@keras.saving.register_keras_serializable(package="keras_ipu")
class Dropout(keras.layers.Layer):
    """Dropout layer: drops elements at random in training, and scales the others by `1 / (1 - rate)`.

    Args:
        rate: the share of elements that are dropped, from 0 to below 1.
        noise_shape: the shape of the mask, 1 where elements share their fate; None for that of the input.
        seed: two int32 for the same mask each time; None for another one.
        ref: whether the backward pass reads the mask or draws it again; no effect on values.
        kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self, rate: float, noise_shape: Sequence[int] | None = None, seed: Any = None, ref: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.rate = rate
        self.noise_shape = None if noise_shape is None else tuple(int(length) for length in noise_shape)
        self.seed = None if seed is None else [int(part) for part in ops.convert_to_numpy(seed)]
        self.ref = ref
        record_ignored("Dropout.ref", None if ref else ref)
        # Only Keras's other backends draw from it.
        tensorflow = keras.backend.backend() == "tensorflow"
        self._generator = None if tensorflow else keras.random.SeedGenerator()
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        """The inputs, some of them dropped if `training`."""
        if not training:
            return inputs
        return dropped(inputs, self.rate, self.noise_shape, self.seed, self._generator)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The input's shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the config that `from_config` takes."""
        noise_shape = None if self.noise_shape is None else list(self.noise_shape)
        own = {"rate": self.rate, "noise_shape": noise_shape, "seed": self.seed, "ref": self.ref}
        return {**super().get_config(), **own}
