"""`run_eagerly=True`: steps run op by op on the device, Python sees numbers, and results are stock Keras's."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import TIGHT, integers, numbers
from tests.helpers.one_ipu import strategy
from tests.helpers.some_ipus import ipus

__all__ = ["strategy"]

X, IDS, Y = numbers(8, 4), integers(5, 8, 2), integers(3, 8)
TENSORFLOW = keras.backend.backend() == "tensorflow"


class Printing(keras.layers.Layer):
    """Keeps what a `print` in `call` would show."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def call(self, x: Any) -> Any:
        if isinstance(x, keras.KerasTensor):
            return x
        with contextlib.suppress(Exception):  # a symbolic tensor has no numbers
            self.seen.append(np.asarray(x))
        return x


def _model() -> keras.Model:
    keras.utils.set_random_seed(3)
    parts = [keras.layers.Embedding(5, 2), keras.layers.Flatten(), Printing(), keras.layers.Dense(3, use_bias=False)]
    return keras.Sequential([keras.Input((2,), dtype="int32"), *parts])


def _run(eagerly: bool) -> list[Any]:
    model = _model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"], run_eagerly=eagerly)
    history = model.fit(IDS, Y, 4, verbose=0, shuffle=False, validation_data=(IDS, Y)).history
    return [*history.values(), model.predict(IDS, 4, verbose=0), *model.get_weights()]


def test_results_are_stock_keras_s(strategy: Any) -> None:
    with strategy.scope(), device_work() as work:
        ours = _run(True)
    # 2 steps of training, 2 of validation, 2 of prediction; on TensorFlow each op is an execution.
    assert work.counts.executions > 50 if TENSORFLOW else work.counts.executions == 6
    for got, wanted in zip(ours, _run(False), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=TIGHT, atol=TIGHT)


def test_python_sees_the_numbers_of_each_step(strategy: Any) -> None:
    with strategy.scope():
        model = _model()
        model.compile(run_eagerly=True)
        model.predict(IDS, 5, verbose=0)
    [printing] = [layer for layer in model._flatten_layers() if isinstance(layer, Printing)]
    assert [each.shape for each in printing.seen] == [(5, 4), (3, 4)]


def test_an_own_step_is_reached_by_a_debugger(strategy: Any) -> None:
    class Own(keras.Model):
        losses_seen: list[float] = []

        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(x)

        def test_step(self, *args: Any) -> Any:
            result = super().test_step(*args)
            self.losses_seen.append(float((result if TENSORFLOW else result[0])["loss"]))
            return result

    with strategy.scope():
        model = Own()
        model.compile(loss="mse", run_eagerly=True)
        loss = model.evaluate(X, X[:, :1], 4, verbose=0)
    np.testing.assert_allclose(model.losses_seen[-1], loss, rtol=TIGHT)
    assert len(model.losses_seen) == 2


def test_it_is_said_once_that_it_is_slow(strategy: Any, caplog: pytest.LogCaptureFixture) -> None:
    ipu.emulation.clear_session()
    with strategy.scope(), caplog.at_level(logging.WARNING, "ipu_tf"):
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        for _ in range(2):
            model.predict(X, verbose=0)
    said = [record.getMessage() for record in caplog.records if "run_eagerly" in record.getMessage()]
    assert len(said) == 1 and "which is slow" in said[0] and "as one program" in said[0]


def test_run_eagerly_may_be_switched(strategy: Any) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        found = []
        for eagerly in (False, True, False):
            model.run_eagerly = eagerly
            found.append(model.predict(X, verbose=0))
    np.testing.assert_allclose(found, [found[0]] * 3, rtol=TIGHT, atol=TIGHT)


def _accumulating(model: keras.Model) -> None:
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)


REFUSED: dict[str, tuple[int, Callable[[Any], Any], str]] = {
    "accumulation": (1, _accumulating, "a model with gradient accumulation"),
    "callbacks": (1, lambda model: model.set_asynchronous_callbacks(True), "a model with asynchronous callbacks"),
    "replicas": (2, lambda model: None, "a model with 2 replicas"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_split_steps_are_refused(what: str) -> None:
    count, prepare, says = REFUSED[what]
    with ipus(count) as strategy, strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        prepare(model)
        with pytest.raises(RuntimeError, match=f"runs op by op on one IPU.*Received: {says}"):
            model.fit(X, X[:, :1], 4, verbose=0)


@pytest.mark.skipif(not TENSORFLOW, reason="variables of TensorFlow")
def test_variables_in_an_eager_step(strategy: Any) -> None:
    table, total = tf.Variable(numbers(4, 3)), tf.Variable([1.0, 2.0])
    start = table.numpy()

    class Steps(keras.Model):
        def predict_step(self, x: Any) -> Any:
            total.assign_add([1.0, 1.0])
            total.assign_sub([0.5, 0.0])
            table.scatter_add(tf.IndexedSlices(tf.ones([2, 3]), tf.constant([1, 1])))
            table.scatter_update(tf.IndexedSlices(tf.zeros([1, 3]), tf.constant([0])))
            return tf.gather(table, [1, 2]) + tf.gather_nd(table, [[0], [1]])

    with strategy.scope():
        model = Steps()
        model.compile(run_eagerly=True)
        got = model.predict_on_batch(X[:2])
    np.testing.assert_allclose(total, [1.5, 3.0])
    np.testing.assert_allclose(table, np.stack([np.zeros(3), start[1] + 2, start[2], start[3]]), rtol=TIGHT)
    np.testing.assert_allclose(got, np.stack([start[1] + 2, start[2] + start[1] + 2]), rtol=TIGHT)


@pytest.fixture
def functions_run_eagerly() -> Iterator[None]:
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.skipif(not TENSORFLOW, reason="a switch of TensorFlow")
@pytest.mark.filterwarnings("ignore:Even though the `tf.config.experimental_run_functions_eagerly` option is set")
@pytest.mark.usefixtures("functions_run_eagerly")
def test_tensorflow_s_own_switch(strategy: Any, caplog: pytest.LogCaptureFixture) -> None:
    ipu.emulation.clear_session()
    with strategy.scope(), caplog.at_level(logging.WARNING, "ipu_tf"):
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.configure_ipu_system()
        model = _model()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        with device_work() as work:
            model.fit(IDS, Y, 4, verbose=0)
        [printing] = [layer for layer in model._flatten_layers() if isinstance(layer, Printing)]
        assert [each.shape for each in printing.seen] == [(4, 4)] * 2
        assert work.counts.executions > 20
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
        with pytest.raises(RuntimeError, match=r"accumulation. Call `tf.config.run_functions_eagerly\(False\)`, or"):
            model.fit(IDS, Y, 4, verbose=0)
    [said] = [record.getMessage() for record in caplog.records if "by itself" in record.getMessage()]
    assert "`tf.config.run_functions_eagerly(False)` runs each step as one program" in said
