"""Patches Keras optimizers to update weights eagerly in a strategy's scope, `optimizer.apply(gradients)`, and to belong
to the strategy that they are used in, wherever they were made.

TensorFlow's strategies refuse it: they want a replica context, which `strategy.run` enters. An `IPUStrategy` is one
replica to TensorFlow, so the call enters that context itself. What it computes, TensorFlow computes on the host.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ipu_tf._state.once import first_time
from keras_ipu.stock import models as keras_models
from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.ownership import on_device

_log = logging.getLogger("ipu_tf")


def install_eager_updates() -> None:
    """Patches `apply` of Keras optimizers for calls in a scope, and the making of their slots. Idempotent."""
    for owner in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        keras_patches.patch_method(owner, "apply", _in_scope, _apply)
    keras_patches.patch_method(keras.optimizers.Optimizer, "add_variable_from_reference", lambda optimizer: True, _slot)


def _in_scope(optimizer: Any) -> bool:
    return tf.distribute.in_cross_replica_context() and on_device(tf.distribute.get_strategy())


def _apply(stock: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    if tf.executing_eagerly() and first_time("eager update", type(optimizer).__name__):
        _tell(type(optimizer).__name__)
    with tf.distribute.get_strategy().replica_context():
        return stock(optimizer, *args, **kwargs)


def _slot(stock: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """Makes a slot in the strategy of the optimizer, which TensorFlow wants to be the current one.

    An optimizer that was made elsewhere, and is used first in a scope or a step of it, is the scope's from then on. One
    of a scope may be built outside of it, as `BackupAndRestore` does.
    """
    own, current = keras_models.strategy_of(optimizer), tf.distribute.get_strategy()
    if on_device(current) and not on_device(own):
        keras_models.adopt(optimizer, current)
    elif on_device(own) and not tf.distribute.has_strategy():
        with own.scope():
            return stock(optimizer, *args, **kwargs)
    return stock(optimizer, *args, **kwargs)


def _tell(optimizer: str) -> None:
    _log.warning(
        "ipu_tf: `%s.apply` is called from Python code in the scope of an IPUStrategy: each op runs by itself on "
        "TensorFlow's CPU, not on the device. Write the training step as a `tf.function` and call "
        "`strategy.run(step, args)`: that runs it on the device, and is much faster.",
        optimizer,
    )
