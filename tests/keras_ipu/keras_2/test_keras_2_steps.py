"""Own steps, counts of steps and callbacks of Keras 2's models: the numbers are stock Keras 2's on joined batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

keras_2: Any = pytest.importorskip("tf_keras", reason="Keras 2 is the package tf_keras, which only its programs need")

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X.sum(axis=1, keepdims=True)
Optimizers = Callable[[float], list[Any]]


class Own(keras_2.Model):
    """Updates its two layers by optimizers of its own, not by the one that it is compiled with.

    Args:
        optimizers: of the layers.
        late: whether the gradients of the second update are those after the first.
    """

    def __init__(self, optimizers: list[Any], late: bool = False) -> None:
        super().__init__()
        self.first, self.last = keras_2.layers.Dense(3), keras_2.layers.Dense(1)
        self.own, self.late = optimizers, late

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """The last layer's outputs."""
        return self.last(self.first(x))

    def gradients(self, data: Any) -> Any:
        """The gradients of all weights."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(data[0]) - data[1]) ** 2)
        return tape.gradient(loss, self.trainable_variables)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """Two updates."""
        gradients, variables = self.gradients(data), self.trainable_variables
        self.own[0].apply_gradients(zip(gradients[:2], variables[:2], strict=True))
        gradients = self.gradients(data) if self.late else gradients
        self.own[1].apply_gradients(zip(gradients[2:], variables[2:], strict=True))
        return {"loss": tf.reduce_mean(data[1])}


GENERATIONS: dict[str, Optimizers] = {
    "newer": lambda scale: [keras_2.optimizers.SGD(0.1 / scale, 0.9), keras_2.optimizers.Adam(0.05)],
    "older": lambda scale: [keras_2.optimizers.legacy.SGD(0.1 / scale, 0.9), keras_2.optimizers.legacy.Adam(0.05)],
}
"""Optimizers by how many means the gradients of replicas are sums of."""


def _own(name: str, count: int, scale: float = 1.0, late: bool = False) -> Own:
    keras_2.utils.set_random_seed(3)
    model = Own(GENERATIONS[name](scale), late)
    model.build((None, 4))
    model.compile(steps_per_execution=count)
    return model


def _trained(model: Own, samples: int, batch: int) -> list[np.ndarray]:
    model.fit(X[:samples], Y[:samples], batch_size=batch, epochs=2, shuffle=False, verbose=0)
    return [*model.get_weights(), *(np.asarray(each.iterations) for each in model.own)]


def _assert_close(found: Any, wanted: Any) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("count", "of", "samples"), [(1, 2, 32), (1, 2, 14), (2, 1, 30), (2, 2, 30)])
@pytest.mark.parametrize("name", GENERATIONS)
def test_optimizers_other_than_the_models_get_the_gradients_of_a_whole_update(
    name: str, count: int, of: int, samples: int
) -> None:
    wanted = _trained(_own(name, 1), samples, 4 * count * of)
    with ipus(count) as strategy, strategy.scope(), device_work() as work:
        model = _own(name, of, count)
        if of > 1:
            model.set_gradient_accumulation_options(of, gradient_accumulation_reduction_method="mean")
        found = _trained(model, samples, 4)
    assert work.counts.executions > 0
    _assert_close(found, wanted)


@pytest.mark.parametrize("name", GENERATIONS)
def test_gradients_after_an_update_are_refused_where_several_batches_are_left(name: str) -> None:
    with ipus(2) as strategy, strategy.scope():
        model = _own(name, 1, 2, late=True)
        with pytest.raises(Exception, match=r"depend on weights which (SGD|sgd) has updated before"):
            _trained(model, 14, 4)


class Looked(keras_2.Model):
    """A table that an optimizer of its own trains, whose gradient has the rows of a batch alone."""

    def __init__(self) -> None:
        super().__init__()
        self.table = keras_2.layers.Embedding(5, 2, embeddings_initializer="ones")
        self.own = keras_2.optimizers.Adam(0.1)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """The rows."""
        return self.table(x)

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """One update."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self(data) ** 2)
        self.own.minimize(loss, self.trainable_variables, tape)
        return {"loss": loss}


def test_a_table_that_another_optimizer_trains() -> None:
    def trained() -> np.ndarray:
        model = Looked()
        model.compile()
        model.fit(np.arange(22) % 3, batch_size=8, epochs=2, shuffle=False, verbose=0)
        return np.asarray(model.get_weights()[0])

    wanted = trained()
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = trained()
    assert work.counts.executions > 0
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("older", [False, True])
def test_a_model_without_trainable_weights_shows_its_loss(older: bool) -> None:
    def shown() -> Any:
        keras_2.utils.set_random_seed(1)
        model = keras_2.Sequential([keras_2.layers.Dense(1)])
        model.build((None, 4))
        model.trainable = False
        model.compile(keras_2.optimizers.legacy.SGD() if older else "sgd", "mse")
        return model.fit(X, Y, batch_size=8, epochs=2, verbose=0).history["loss"]

    wanted = shown()
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = shown()
    assert work.counts.executions > 0
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def _dense(scale: float = 1.0) -> Any:
    keras_2.utils.set_random_seed(1)
    model = keras_2.Sequential([keras_2.layers.Dense(1)])
    model.build((None, 4))
    model.compile(keras_2.optimizers.SGD(0.1 / scale), "mse")
    return model


@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_steps_that_replicas_do_not_divide_take_so_many_batches(steps: int) -> None:
    stock = _dense()
    wanted = stock.predict(X, batch_size=4, steps=steps, verbose=0)
    loss = stock.evaluate(X, Y, batch_size=4, steps=steps, verbose=0)
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        model = _dense()
        found = model.predict(X, batch_size=4, steps=steps, verbose=0)
        assert model.evaluate(X, Y, batch_size=4, steps=steps, verbose=0) == pytest.approx(loss, rel=1e-5)
    assert work.counts.executions > 0
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_epochs_of_endless_data_begin_where_the_last_one_has_ended() -> None:
    stock = _dense()
    for start, end in ((0, 8), (8, 12), (12, 20), (20, 24)):
        stock.train_on_batch(X[start:end], Y[start:end])
    wanted = stock.evaluate(X[:12], Y[:12], verbose=0)
    with ipus(2) as strategy, strategy.scope():
        model = _dense(2)
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
        options = {"validation_data": data.repeat(), "validation_steps": 3, "verbose": 0}
        shown = model.fit(data.repeat(), steps_per_epoch=3, epochs=2, **options).history
    _assert_close(model.get_weights(), stock.get_weights())
    assert shown["val_loss"][-1] == pytest.approx(wanted, rel=1e-4)


class Halving(keras_2.callbacks.Callback):
    """Looks at the weights after each batch, and halves them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[np.ndarray] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Halves the weights."""
        self.seen.append(self.model.get_weights()[0])
        self.model.set_weights([each / 2 for each in self.model.get_weights()])


def test_callbacks_in_a_list_of_the_users_own_see_and_change_the_weights_of_their_batch() -> None:
    def trained() -> list[np.ndarray]:
        model, halving = _dense(), Halving()
        callbacks = keras_2.callbacks.CallbackList([halving], model=model)
        model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
        model.evaluate(X, Y, batch_size=8, verbose=0, callbacks=callbacks)
        assert callbacks.callbacks == [halving]
        return [*halving.seen, *model.get_weights()]

    wanted = trained()
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        found = trained()
    assert work.counts.executions > 0
    _assert_close(found, wanted)


def test_weights_and_metrics_after_a_train_function_that_the_program_calls() -> None:
    def trained() -> list[Any]:
        model = _own("newer", 1)
        model.make_train_function()
        batches = iter(tf.data.Dataset.from_tensor_slices((X, Y)).batch(12))
        losses = [float(model.train_function(batches)["loss"]) for _ in range(3)]
        return [losses, *model.get_weights()]

    wanted = trained()
    with ipus(1) as strategy, strategy.scope():
        found = trained()
    for each, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(each, expected, rtol=1e-4, atol=1e-6)
