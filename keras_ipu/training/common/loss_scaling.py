"""Says when a dynamic loss scale cannot work: it looks for gradients that overflow, and float16 saturates."""

from __future__ import annotations

import logging
from typing import Any

import keras

from ipu_tf._config.state import configured_system
from ipu_tf._state.once import first_time
from keras_ipu.stock.graphs import layers_within

_log = logging.getLogger("ipu_tf")
_SATURATES = (
    "ipu_tf: %s: a LossScaleOptimizer looks for infinite gradients, but float16 saturates on the device, as on an IPU: "
    "gradients beyond its range are clipped to it, and the scale never falls. For the numbers of stock Keras set "
    "`config.floating_point_behaviour.nanoo = True` before `configure_ipu_system()`."
)


def warn_if_overflow_is_hidden(model: Any) -> None:
    """Warns, once for each name of a model, if its optimizer waits for overflow that does not show.

    Args:
        model: of either Keras, about to be trained on the device.
    """
    if keras.backend.backend() == "jax" and isinstance(model, keras.Model):
        return  # where float16 overflows to infinity
    waits = _is_dynamic(getattr(model, "optimizer", None)) and _computes_in_half(model)
    if waits and _saturates() and first_time(_SATURATES, model.name):
        _log.warning(_SATURATES, model.name)


def _is_dynamic(optimizer: Any) -> bool:
    scales = "LossScaleOptimizer" in {kind.__name__.removesuffix("V3") for kind in type(optimizer).__mro__}
    return scales and bool(getattr(optimizer, "dynamic", True))  # that of Keras 3 always is


def _computes_in_half(model: Any) -> bool:
    return any(getattr(layer, "compute_dtype", None) == "float16" for layer in layers_within(model))


def _saturates() -> bool:
    system = configured_system()
    behaviour = None if system is None else system.config.floating_point_behaviour
    return behaviour is None or not (behaviour.nanoo or behaviour.set_all)
