"""Data of `fit` in several instances: sharded as their options say, of one length in all; the same data is told.

fit(dataset) ─► sharded ─► this instance's batches ─► agree on their number ─► feed ─► first execution ─► compare
                   └──── checksum of the first batch ──────────────────────────┘
"""

from __future__ import annotations

import contextvars
from typing import Any

import tensorflow as tf

from ipu_tf._strategy.auto_shard import is_sharded_by_data, sharded
from ipu_tf._training.replication import instance_count
from keras_ipu.training.common.first_batch import FirstBatch

current_first_batch: contextvars.ContextVar[FirstBatch | None] = contextvars.ContextVar("ipu_first_batch", default=None)
"""That of this thread's `fit`, for the iterator over its training data."""


def take_first_batch(iterator: Any, eagerly: bool) -> FirstBatch | None:
    """Has the instances agree on the lengths of an epoch iterator that this thread's `fit` made.

    Args:
        iterator: it; Keras makes the one over training data first, then that over validation data.
        eagerly: whether the model runs with `run_eagerly=True`.

    Returns:
        What they compare of the training data; None for others.
    """
    first = current_first_batch.get()
    if first is None:
        return None
    trains = first.claim()
    first.agree(iterator, eagerly)
    return first if trains else None


def share_data(method: str, model: Any, arguments: dict[str, Any], replicas: int) -> FirstBatch | None:
    """Changes the data of `fit`, `evaluate` or `predict`, by name, to this instance's share, as their options say.

    Args:
        method: which of them.
        model: whose method it is.
        arguments: of the method, by name.
        replicas: how many batches a step takes in this instance.

    Returns:
        What the instances are to compare; None if nothing.

    Raises:
        ValueError: as `sharded` says.
    """
    if instance_count() == 1:
        return None
    x = arguments.get("x")
    first = None
    if method == "fit":
        epochs = int(arguments.get("epochs", 1)) - int(arguments.get("initial_epoch", 0))
        first = FirstBatch(model, is_sharded_by_data(x), _is_off(x), epochs)
    for name in ("x", "validation_data"):
        data = arguments.get(name)
        if isinstance(data, tf.data.Dataset):
            told = first.note if first is not None and name == "x" else lambda arrays: None
            arguments[name] = sharded(data, replicas, told)
    return first


def _is_off(data: Any) -> bool:
    policy = tf.data.experimental.AutoShardPolicy.OFF
    return isinstance(data, tf.data.Dataset) and data.options().experimental_distribute.auto_shard_policy == policy
