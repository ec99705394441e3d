"""Layers that Keras 3 dropped."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import keras

from ipu_tf._patches.import_hooks import add_fallback
from keras_ipu.stock import patches as keras_patches


@keras.saving.register_keras_serializable(package="keras_ipu")
class ThresholdedReLU(keras.layers.Layer):
    """Passes values above a threshold, and gives 0 for others.

    Args:
        theta: the threshold, not negative.
        **kwargs: as for other layers.

    Raises:
        ValueError: if `theta` is negative or None.
    """

    def __init__(self, theta: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if theta is None or theta < 0:
            raise ValueError(f"theta of ThresholdedReLU must be a number of at least 0. Received: {theta!r}")
        self.theta = float(theta)

    def call(self, inputs: Any) -> Any:
        """Returns the values above the threshold, in the shape and dtype of the inputs."""
        return inputs * keras.ops.cast(inputs > self.theta, inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments to make the layer again."""
        return {**super().get_config(), "theta": self.theta}


def _without(name: str) -> type:
    """Makes a class that can be imported, as many programs do without a use for it, but not be made."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"Keras 3 has no layer {name}. Keras 2's runs with the environment variable TF_USE_LEGACY_KERAS=1 "
            f"(pip install tf_keras). Received: {name}{args}"
        )

    return type(name, (keras.layers.Layer,), {"__init__": init})


_LAYERS: dict[str, Any] = {
    "ThresholdedReLU": ThresholdedReLU,
    **{name: _without(name) for name in ("LocallyConnected1D", "LocallyConnected2D")},
}


def install_removed_layers() -> None:
    """Adds the layers to the modules `layers` of Keras. Calling it again changes nothing."""
    keras_patches.after_import_of_keras("layers", _add)


def _add(layers: ModuleType) -> None:
    add_fallback(layers, _LAYERS.__contains__, _load)


def _load(name: str) -> object:
    return _LAYERS[name]
