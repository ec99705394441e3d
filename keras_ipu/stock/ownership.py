"""`is_ipu_model`: whether a model belongs to an `IPUStrategy`."""

from __future__ import annotations

from typing import Any

from ipu_tf.ipu_strategy import IPUStrategyV1
from keras_ipu.stock import models as keras_models
from keras_ipu.stock import patches as keras_patches


def on_device(strategy: Any) -> bool:
    """Returns whether a strategy runs Keras models on the device."""
    return isinstance(strategy, IPUStrategyV1) and strategy.keras_extensions_enabled


def is_ipu_model(layer: Any) -> bool:
    """Returns whether an object is a model that was made in the scope of an `IPUStrategy`.

    A class of Keras's `Trainer` and any layer is a model too, without being a `keras.Model`.
    """
    return isinstance(layer, keras_patches.Trainer) and on_device(keras_models.strategy_of(layer))
