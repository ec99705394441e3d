"""One tensor of labels for a model with several outputs is the label of each, as in Keras 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_ipu.stock import patches as keras_patches

_METHODS = ("compute_loss", "compute_metrics")


def install_one_target() -> None:
    """Patches losses and metrics of Keras's models to take one tensor of labels. Calling it again changes nothing."""
    for name in _METHODS:
        keras_patches.patch_trainer_method(name, _for_each_output)


def _for_each_output(
    stock: Callable[..., Any], model: Any, x: Any = None, y: Any = None, y_pred: Any = None, *args: Any, **kwargs: Any
) -> Any:
    if y is not None and not keras.tree.is_nested(y) and keras.tree.is_nested(y_pred):
        y = keras.tree.map_structure(lambda _: y, y_pred)
    return stock(model, x, y, y_pred, *args, **kwargs)
