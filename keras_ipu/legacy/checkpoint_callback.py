"""`ModelCheckpoint` with Keras 2's arguments: any file name, `period`, `include_optimizer`, "acc" in "auto" mode."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import keras

from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.attributes import own_attribute

#: Parts of the names of metrics that are better when they are greater.
_GREATER = ("acc", "auc", "fmeasure")


def install_checkpoint_callback() -> None:
    """Patches `ModelCheckpoint`. Calling it again changes nothing."""
    checkpoint = keras.callbacks.ModelCheckpoint
    keras_patches.patch_method(checkpoint, "__init__", _always, _init)
    keras_patches.patch_method(checkpoint, "_save_model", _always, _save_model)
    keras_patches.patch_method(checkpoint.__mro__[1], "_set_monitor_op", _always, _set_monitor_op)


def _always(_: Any) -> bool:
    return True


def _init(stock: Callable[..., Any], callback: Any, filepath: Any, *args: Any, **kwargs: Any) -> None:
    period, with_optimizer = kwargs.pop("period", 1), kwargs.pop("include_optimizer", True)
    kwargs.pop("options", None)
    weights_only = args[3] if len(args) > 3 else kwargs.get("save_weights_only", False)
    # Keras 3 looks at the end of the name, which is free in Keras 2.
    stock(callback, "any.weights.h5" if weights_only else "any.keras", *args, **kwargs)
    callback.filepath = os.fspath(filepath)
    callback.period, callback.include_optimizer, callback.epochs_since_last_save = period, with_optimizer, 0


def _save_model(stock: Callable[..., Any], callback: Any, epoch: int, batch: Any, logs: Any) -> None:
    if batch is None:
        callback.epochs_since_last_save += 1
        if callback.epochs_since_last_save < callback.period:
            return
        callback.epochs_since_last_save = 0
    if callback.include_optimizer or callback.save_weights_only:
        stock(callback, epoch, batch, logs)
        return
    model = callback.model
    save = model.save
    with own_attribute(model, "save", lambda path, **kwargs: save(path, include_optimizer=False, **kwargs)):
        stock(callback, epoch, batch, logs)


def _set_monitor_op(stock: Callable[..., Any], callback: Any) -> None:
    """In "auto" mode, a metric with a name like that of an accuracy is better when it is greater, others when less."""
    if callback.mode != "auto":
        stock(callback)
        return
    try:
        stock(callback)
    except ValueError:
        callback.mode = "max" if any(part in callback.monitor for part in _GREATER) else "min"
        stock(callback)
        callback.mode = "auto"
