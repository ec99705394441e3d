"""Repeated `fit` leaves no threads behind."""

from __future__ import annotations

import gc
import os

import keras
import numpy as np
import tensorflow as tf

from tests.helpers.some_ipus import ipus


def threads() -> int:
    """The threads of this process, TensorFlow's and JAX's among them."""
    return len(os.listdir("/proc/self/task"))


def test_iterators_end_with_their_epochs() -> None:
    """An iterator over a dataset has threads of its own, until Python next collects cycles if it is in one."""
    data = tf.data.Dataset.from_tensor_slices((np.ones((32, 4), np.float32), np.ones((32, 1), np.float32)))
    data = data.batch(8, drop_remainder=True)
    counts = []
    with ipus(1) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        gc.collect()
        gc.disable()
        try:
            for _ in range(30):
                model.fit(data, epochs=2, shuffle=False, verbose=0)
                counts.append(threads())
        finally:
            gc.enable()
    assert max(counts) <= counts[0] + 80, counts
