"""Keras 2's `LossScaleOptimizer`: a fixed scale by `dynamic=False`, `get_scaled_loss`, `get_unscaled_gradients`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_ipu.stock import patches as keras_patches


def install_loss_scaling() -> None:
    """Patches `LossScaleOptimizer`. Calling it again changes nothing."""
    scaling = keras.optimizers.LossScaleOptimizer
    keras_patches.patch_method(scaling, "__init__", lambda _: True, _init_scaling)
    keras_patches.patch_method(scaling, "apply", lambda _: True, _apply_scaled)
    keras_patches.patch_method(scaling, "check_finite", _is_fixed, lambda *_: keras.ops.convert_to_tensor(True))
    for name, attribute in _SCALING.items():
        keras_patches.add_attribute(scaling, name, attribute, __name__)


def _init_scaling(stock: Callable[..., Any], optimizer: Any, inner_optimizer: Any, *args: Any, **kwargs: Any) -> None:
    """Takes Keras 2's `dynamic`, by name or before `initial_scale`; a fixed scale is one that never grows."""
    dynamic = kwargs.pop("dynamic", True)
    if args and isinstance(args[0], bool):
        dynamic, args = args[0], args[1:]
    names = ("initial_scale", "dynamic_growth_steps")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    given = {name: value for name, value in given.items() if name not in names or value is not None}
    if not dynamic:
        if "initial_scale" not in given:
            raise ValueError('"initial_scale" must be specified if "dynamic" is False, but got: None')
        given["dynamic_growth_steps"] = 0
    stock(optimizer, inner_optimizer, **given)


def _is_fixed(optimizer: Any) -> bool:
    return bool(optimizer.dynamic_growth_steps == 0)


def _scaled_loss(optimizer: Any, loss: Any) -> Any:
    return (lambda: optimizer.scale_loss(loss())) if callable(loss) else optimizer.scale_loss(loss)


def _unscaled_gradients(optimizer: Any, grads: Any) -> list[Any]:
    """Divides gradients by the scale, which Keras 3's `apply` will do again."""
    object.__setattr__(optimizer, "_is_unscaled", True)
    scale = _scale(optimizer)
    return [each if each is None else each / tf.cast(scale, each.dtype) for each in grads]


def _apply_scaled(stock: Callable[..., Any], optimizer: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
    if vars(optimizer).get("_is_unscaled"):
        object.__setattr__(optimizer, "_is_unscaled", False)
        scale = _scale(optimizer)
        grads = [each if each is None else each * tf.cast(scale, each.dtype) for each in grads]
    return stock(optimizer, grads, *args, **kwargs)


def _scale(optimizer: Any) -> Any:
    return optimizer.dynamic_scale if optimizer.built else optimizer.initial_scale


_SCALING = {
    "dynamic": property(lambda optimizer: not _is_fixed(optimizer)),
    "loss_scale": property(_scale),
    "get_scaled_loss": _scaled_loss,
    "get_unscaled_gradients": _unscaled_gradients,
}
