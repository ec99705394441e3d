"""Repeated `fit` leaves no threads behind; threads of the user may share a model."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import os
import threading
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.helpers.device_counts import device_work
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


def test_threads_may_predict_with_one_model() -> None:
    """Each gets the outputs of its own data."""
    wrong: list[Any] = []

    def work(number: int) -> None:
        data = np.full((512, 1), number, np.float32)
        for _ in range(10):
            found = model.predict(data, batch_size=8, verbose=0)
            if found.shape != data.shape or (found != data).any():
                wrong.append((number, found.shape, np.unique(found)))

    with ipus(1) as strategy, concurrent.futures.ThreadPoolExecutor(4) as pool:
        with strategy.scope():
            layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
            model = keras.Sequential([keras.Input((1,)), layer])
            model.compile(loss="mse", steps_per_execution=8)
        model.predict(np.zeros((64, 1), np.float32), batch_size=8, verbose=0)
        with device_work() as did:
            list(pool.map(work, range(1, 5)))
    assert wrong == []
    assert did.counts.steps == 4 * 10 * 64


class Meeting(keras.layers.Layer):
    """Gives its inputs. Once it is told to, its calls wait for one another, as two traces at once would meet."""

    def __init__(self) -> None:
        super().__init__()
        self.together: threading.Barrier | None = None

    def call(self, inputs: Any) -> Any:
        if self.together is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                self.together.wait(2)
        return inputs


def test_first_runs_of_a_model_in_several_threads() -> None:
    """Their steps are traced one after the other: a trace changes methods of metrics and losses for its time."""
    x, y = np.arange(12.0, dtype=np.float32).reshape(6, 2), np.ones((6, 1), np.float32)

    def compiled(meeting: Meeting) -> Any:
        layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        model = keras.Sequential([keras.Input((2,)), meeting, layer])
        model.compile("sgd", "mse", metrics=["mae"])
        return model

    stock = compiled(Meeting()).evaluate(x, y, batch_size=2, verbose=0)
    with ipus(1) as strategy, concurrent.futures.ThreadPoolExecutor(2) as pool:
        with strategy.scope():
            meeting = Meeting()
            model = compiled(meeting)
        meeting.together = threading.Barrier(2)
        runs = [pool.submit(model.evaluate, x, y, batch_size=2, verbose=0) for _ in range(2)]
        for run in runs:
            run.result()
        meeting.together = None
        np.testing.assert_allclose(model.evaluate(x, y, batch_size=2, verbose=0), stock, rtol=1e-5)
        parts = [model._compile_metrics, model._compile_loss, *model.metrics]
        assert [part for part in parts if {"build", "update_state"} & set(vars(part))] == []
