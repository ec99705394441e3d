"""Whether a model's optimizer finds a loss scale by gradients that overflow, which float16 on an IPU does not show."""

from __future__ import annotations

from typing import Any

import keras

from keras_ipu.stock.graphs import layers_within


def looks_for_overflow(model: Any) -> bool:
    """Returns whether training needs float16 that overflows to be NaN: on an IPU it saturates, unless configured.

    Where gradients are not finite, stock Keras skips the update and halves the scale of a dynamic `LossScaleOptimizer`.

    Args:
        model: of either Keras. With Keras 3 on JAX float16 overflows to infinity anyway.
    """
    if keras.backend.backend() == "jax" and isinstance(model, keras.Model):
        return False
    return _is_dynamic(getattr(model, "optimizer", None)) and _computes_in_half(model)


def _is_dynamic(optimizer: Any) -> bool:
    scales = "LossScaleOptimizer" in {kind.__name__.removesuffix("V3") for kind in type(optimizer).__mro__}
    return scales and bool(getattr(optimizer, "dynamic", True))  # that of Keras 3 always is


def _computes_in_half(model: Any) -> bool:
    return any(getattr(layer, "compute_dtype", None) == "float16" for layer in layers_within(model))
