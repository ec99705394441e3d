"""`is_ipu_model`: whether a model belongs to an `IPUStrategy`."""

from __future__ import annotations

from typing import Any

import keras

from ipu_tf.ipu_strategy import IPUStrategyV1
from keras_ipu.stock import models as keras_private


def on_device(strategy: Any) -> bool:
    """Returns whether a strategy runs Keras models on the device."""
    return isinstance(strategy, IPUStrategyV1) and strategy.keras_extensions_enabled


def is_ipu_model(layer: Any) -> bool:
    """Returns whether an object is a model that was made in the scope of an `IPUStrategy`."""
    return isinstance(layer, keras.Model) and on_device(keras_private.strategy_of(layer))
