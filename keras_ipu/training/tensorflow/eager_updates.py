"""Patches Keras optimizers to update weights eagerly in a strategy's scope: `optimizer.apply(gradients)`.

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
from keras_ipu.stock import patches as keras_patches
from keras_ipu.stock.ownership import on_device

_log = logging.getLogger("ipu_tf")


def install_eager_updates() -> None:
    """Patches `apply` of Keras optimizers for calls in a scope, outside of the device's programs. Idempotent."""
    for owner in (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer):
        keras_patches.patch_method(owner, "apply", _in_scope, _apply)


def _in_scope(optimizer: Any) -> bool:
    return tf.distribute.in_cross_replica_context() and on_device(tf.distribute.get_strategy())


def _apply(stock: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    if tf.executing_eagerly() and first_time("eager update", type(optimizer).__name__):
        _tell(type(optimizer).__name__)
    with tf.distribute.get_strategy().replica_context():
        return stock(optimizer, *args, **kwargs)


def _tell(optimizer: str) -> None:
    _log.warning(
        "ipu_tf: `%s.apply` is called from Python code in the scope of an IPUStrategy: each op runs by itself on "
        "TensorFlow's CPU, not on the device. Write the training step as a `tf.function` and call "
        "`strategy.run(step, args)`: that runs it on the device, and is much faster.",
        optimizer,
    )
