"""Epochs of Keras 2's models whose batches replicas do not divide, and runs within a run: the numbers are stock's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ipu_tf.emulation import EmulationError
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

keras_2: Any = pytest.importorskip("tf_keras", reason="Keras 2 is the package tf_keras, which only its programs need")

X = np.random.default_rng(0).normal(size=(20, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)


def _dense(scale: float = 1.0, **options: Any) -> Any:
    keras_2.utils.set_random_seed(1)
    model = keras_2.Sequential([keras_2.layers.Dense(1)])
    model.build((None, 4))
    model.compile(keras_2.optimizers.SGD(0.1 / scale), "mse", **options)
    return model


class Running(keras_2.callbacks.Callback):
    """Predicts after each batch, and evaluates another model.

    Args:
        model: that runs; None for the one that is trained, whose metrics go on.
    """

    def __init__(self, model: Any = None) -> None:
        super().__init__()
        self._model = model
        self.lengths: list[int] = []
        self.losses: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Takes three batches."""
        model = self._model or self.model
        self.lengths.append(len(model.predict(X, batch_size=4, steps=3, verbose=0)))
        if self._model is not None:
            self.losses.append(model.evaluate(X[:12], Y[:12], batch_size=4, verbose=0))


class Evaluating(keras_2.callbacks.Callback):
    """Evaluates the model that is trained, also after an epoch's last execution, which has fewer batches."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Evaluates three batches."""
        self.losses.append(self.model.evaluate(X[:12], Y[:12], batch_size=4, verbose=0))


def _trained(model: Any, batch: int, callbacks: Any = None) -> tuple[Any, list[np.ndarray]]:
    options = {"epochs": 3, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    shown = model.fit(X, Y, batch_size=batch, validation_data=(X[:12], Y[:12]), **options).history
    return [shown["loss"], shown["val_loss"]], model.get_weights()


@pytest.mark.parametrize("running", [False, True], ids=["alone", "with runs of the model within"])
@pytest.mark.parametrize("steps", [1, 2])
def test_epochs_of_arrays_have_their_batches_alone(steps: int, running: bool) -> None:
    wanted = _trained(_dense(), 8)
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        callbacks = [Running()] if running else []
        found = _trained(_dense(2, steps_per_execution=steps), 4, callbacks)
    assert work.counts.executions > 0
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4)
    for one, other in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)
    assert all(set(each.lengths) == {12} for each in callbacks)


def test_another_model_runs_while_one_is_trained() -> None:
    loss = _dense().evaluate(X[:12], Y[:12], batch_size=4, verbose=0)
    wanted = _trained(_dense(), 8)
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        running = Running(_dense())
        found = _trained(_dense(2), 4, [running])
        inner = _dense(2)
        nested = keras_2.callbacks.LambdaCallback(on_train_end=lambda logs: inner_found.append(_trained(inner, 4)))
        inner_found: list[Any] = []
        _trained(_dense(2), 4, [nested])
    assert work.counts.executions > 0
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4)
    np.testing.assert_allclose(inner_found[0][0], wanted[0], rtol=1e-4)
    assert set(running.lengths) == {12}
    np.testing.assert_allclose(running.losses, loss, rtol=1e-5)


def test_a_model_is_evaluated_while_it_is_trained(caplog: pytest.LogCaptureFixture) -> None:
    wanted, found = Evaluating(), Evaluating()
    _trained(_dense(), 8, [wanted])
    with ipus(2) as strategy, strategy.scope():
        _trained(_dense(2), 4, [found])
    np.testing.assert_allclose(found.losses, wanted.losses, rtol=1e-4)
    assert "ran out of data" not in caplog.text


def test_replicas_refuse_steps_that_keras_counts_itself() -> None:
    with ipus(2) as strategy, strategy.scope():
        model = _dense(steps_per_execution="auto")
        with pytest.raises(EmulationError, match="steps_per_execution='auto'"):
            model.fit(X, Y, verbose=0)
