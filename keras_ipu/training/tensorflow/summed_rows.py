"""Sums the repeated rows of sparse gradients (`tf.IndexedSlices`) before a Keras optimizer sees them.

    batch    tokens 1 1 4        gradient of the table: rows g0 g1 g2 at indices 1 1 4
    here     row 1: g0 + g1      clipping and the optimizer see a dense tensor, as they do when training is split
    stock    v += g0^2 + g1^2    Keras 3 on TensorFlow; on JAX, and Keras 2, v += (g0 + g1)^2

`docs/gradients.md` tells users about it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._state.once import first_time
from ipu_tf._training.weight_update import traced_for_device
from keras_ipu.stock import patches

_log = logging.getLogger("ipu_tf")
_CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")
_LINEAR = (keras.optimizers.SGD, keras.optimizers.Lion)
"""Optimizers whose update, as long as nothing is clipped, does not depend on which rows are added up first."""


def sum_repeated_rows(optimizer: Any, gradients: Iterable[Any], variables: Iterable[Any] | None) -> list[Any]:
    """Converts sparse gradients to dense tensors if the optimizer's update depends on it. Logs it once.

    Args:
        optimizer: the Keras optimizer that will be given them.
        gradients: one for each variable: a tensor, `tf.IndexedSlices` or None.
        variables: those that are updated, or None for those that the optimizer was built with.
    """
    gradients = list(gradients)
    sparse = [place for place, each in enumerate(gradients) if isinstance(each, tf.IndexedSlices)]
    clipping = [name for name in _CLIPPING if getattr(optimizer, name, None)]
    if not sparse or (type(optimizer) in _LINEAR and not clipping):
        # Only the rows that a batch names are touched, which for a large table is most of the step's time.
        return gradients
    known = list(getattr(optimizer, "_trainable_variables", ()) if variables is None else variables)
    first = known[sparse[0]] if sparse[0] < len(known) else None
    table = getattr(first, "path", getattr(first, "name", "an embedding"))  # of Keras, or TensorFlow's own
    update = " and ".join([type(optimizer).__name__, *clipping])
    if first_time("summed rows", table, update):
        _log_message(table, update)
    return [tf.convert_to_tensor(each) if place in sparse else each for place, each in enumerate(gradients)]


def _log_message(table: str, update: str) -> None:
    _log.info(
        "ipu_tf: the gradients of a row of `%s` that a batch names several times are added up before %s: numbers do "
        "not depend on how training is split, and are those of Keras on JAX. Stock Keras on TensorFlow does not add "
        "them up first, and its numbers differ. See docs/gradients.md.",
        table,
        update,
    )


def patch_row_sums() -> None:
    """Patches Keras optimizers to sum repeated rows when applied in a program of the device, once."""
    patches.patch_method(keras.optimizers.Optimizer, "apply", lambda optimizer: traced_for_device(), _apply)


def _apply(stock: Callable[..., Any], optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    variables = None if trainable_variables is None else list(trainable_variables)
    return stock(optimizer, sum_repeated_rows(optimizer, grads, variables), variables)
