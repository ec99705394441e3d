"""Sums gradients before a Keras optimizer sees them: repeated rows of sparse ones (`tf.IndexedSlices`), and replicas'.

    batch    tokens 1 1 4        gradient of the table: rows g0 g1 g2 at indices 1 1 4
    here     row 1: g0 + g1      clipping and the optimizer see a dense tensor, as they do when training is split
    stock    v += g0^2 + g1^2    Keras 3 on TensorFlow; on JAX, and Keras 2, v += (g0 + g1)^2

    here     apply ──► sum over replicas ──► all finite? clip ──► update
    stock    apply ──► all finite? clip ──► sum over replicas ──► update

With stock Keras's order what is clipped depends on how a batch is split; and with a `LossScaleOptimizer` one replica
updates its weights while another, whose gradients are not finite, does not.

`docs/gradients.md` tells users about rows, `docs/splitting.md` about replicas.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._state.once import first_time
from ipu_tf._training.weight_update import gradients_are_reduced, gradients_reduced, traced_for_device
from keras_ipu.stock import models, patches
from keras_ipu.stock.ownership import on_device

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


def patch_gradient_sums() -> None:
    """Patches Keras optimizers to sum gradients when applied in a program of the device, once."""
    for owner in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        patches.patch_method(owner, "apply", _of_one_replica, _apply_to_replicas)
    patches.patch_method(keras.optimizers.Optimizer, "apply", lambda optimizer: traced_for_device(), _apply)


def _apply(stock: Callable[..., Any], optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    variables = None if trainable_variables is None else list(trainable_variables)
    return stock(optimizer, sum_repeated_rows(optimizer, grads, variables), variables)


def _of_one_replica(optimizer: Any) -> bool:
    """Returns whether gradients that an optimizer is given now may be those of one replica of several."""
    in_replica = on_device(tf.distribute.get_strategy()) and not tf.distribute.in_cross_replica_context()
    return in_replica and traced_for_device() and not gradients_are_reduced()


def _apply_to_replicas(stock: Callable[..., Any], optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    given = list(grads)
    sums = models.summed_over_replicas(optimizer, given)
    summed = any(whole is not gradient for whole, gradient in zip(sums, given, strict=True))
    with gradients_reduced() if summed else contextlib.nullcontext():
        return stock(optimizer, sums, trainable_variables)
