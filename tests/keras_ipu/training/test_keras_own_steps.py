"""Models without a `call`, with a `build`, of Keras's `Trainer` and a layer, and uncompiled: as in stock Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_ipu import PipelineStage
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import TIGHT, numbers
from tests.helpers.one_ipu import strategy

# Its import makes `fit` look for stages in models, which these have to pass too.
__all__ = ["PipelineStage", "strategy"]

BATCH, STEPS = 8, 4
X = numbers(BATCH * STEPS, 6)
ON_JAX = keras.backend.backend() == "jax"
#: The class of fit, evaluate and predict of Keras's back end, which users find by name there.
TRAINER: Any = next(kind for kind in keras.Model.__mro__ if kind.__name__ in ("TensorFlowTrainer", "JAXTrainer"))


def _dense(inputs: int, units: int, seed: int) -> Any:
    kernel = keras.initializers.RandomNormal(seed=seed)
    return keras.Sequential([keras.Input((inputs,)), layers.Dense(units, kernel_initializer=kernel)])


class Autoencoder(keras.Model):
    """Two models and a `train_step` of its own; no `call`."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = _dense(6, 2, 1), _dense(2, 6, 2)
        self.built = True

    def train_step(self, *given: Any) -> Any:
        return self._jax_step(*given) if ON_JAX else self._tensorflow_step(*given)

    def _tensorflow_step(self, data: Any) -> Any:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = ops.mean((self.decoder(self.encoder(data)) - data) ** 2)
        self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}

    def _jax_step(self, state: Any, data: Any) -> Any:
        import jax

        weights, others, slots, metrics = state

        def loss_of(weights: Any) -> Any:
            code, _ = self.encoder.stateless_call(weights[:2], [], data[0])
            return ops.mean((self.decoder.stateless_call(weights[2:], [], code)[0] - data[0]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        weights, slots = self.optimizer.stateless_apply(slots, gradients, weights)
        return {"loss": loss}, (weights, others, slots, metrics)


class Adversaries(keras.Model):
    """Two models that each have an optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.judge, self.forger = _dense(6, 1, 3), _dense(3, 6, 4)
        self.optimizers = keras.optimizers.Adam(0.01), keras.optimizers.SGD(0.1, momentum=0.9)

    def train_step(self, real: Any) -> Any:
        import tensorflow as tf

        losses = {}
        for model, optimizer, sign in zip((self.judge, self.forger), self.optimizers, (1, -1), strict=True):
            with tf.GradientTape() as tape:
                forged = self.judge(self.forger(real[:, :3]))
                loss = sign * (ops.mean(ops.softplus(forged)) + ops.mean(ops.softplus(-self.judge(real))))
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.trainable_weights), model.trainable_weights, strict=True)
            )
            losses[model.name] = loss
        return {"judge": losses[self.judge.name], "forger": losses[self.forger.name]}


class TrainedLayer(TRAINER, layers.Dense):
    """A layer that has `fit`, and is no `keras.Model`."""

    def __init__(self, units: int) -> None:
        layers.Dense.__init__(self, units, kernel_initializer="ones")
        TRAINER.__init__(self)


class BuildsLayers(keras.Model):
    """Makes its layers in a `build` of its own, which calls Keras's."""

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_weight(shape=(input_shape[-1],), initializer="ones")
        self.inner, self.outer = keras.Sequential([layers.Dense(3, "tanh")]), layers.Dense(2)
        super().build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.outer(self.inner(inputs * self.scale))


def _autoencoder() -> list[Any]:
    model = Autoencoder()
    model.compile(keras.optimizers.Adam(0.01))
    if ON_JAX:
        model.optimizer.build(model.trainable_variables)
        return [model.fit(X, X, BATCH, epochs=2, verbose=0, shuffle=False).history["loss"], *model.get_weights()]
    return [model.fit(X, None, BATCH, epochs=2, verbose=0, shuffle=False).history["loss"], *model.get_weights()]


def _adversaries() -> list[Any]:
    model = Adversaries()
    model.compile()
    history = model.fit(X, None, BATCH, epochs=2, verbose=0, shuffle=False).history
    return [history["judge"], history["forger"], *model.get_weights()]


def _trained_layer() -> list[Any]:
    model = TrainedLayer(2)
    model.compile("sgd", "mse")
    y = numbers(BATCH * STEPS, 2)
    history = model.fit(X, y, BATCH, epochs=2, verbose=0, shuffle=False).history
    return [history["loss"], model.evaluate(X, y, BATCH, verbose=0), model.predict(X, BATCH, verbose=0)]


def _builds_layers() -> list[Any]:
    keras.utils.set_random_seed(1)
    y, shown = numbers(BATCH * STEPS, 2), list[Any]()
    for fitted in (True, False):
        model = BuildsLayers()  # whose first step, without `fit`, is traced before any layer is built
        model.compile("sgd", "mse")
        if fitted:
            shown += model.fit(X, y, BATCH, verbose=0).history["loss"]
        shown += [model.train_on_batch(X[:BATCH], y[:BATCH]), *model.get_weights()]
    return shown


def _uncompiled() -> list[Any]:
    return [_dense(6, 2, 5).predict(X, BATCH, verbose=0)]


PROGRAMS: dict[str, tuple[Callable[[], list[Any]], int]] = {
    "no call": (_autoencoder, 8),
    "two optimizers": (_adversaries, 8),
    "trainer and layer": (_trained_layer, 16),
    "a build of its own": (_builds_layers, 6),
    "uncompiled": (_uncompiled, 4),
}


@pytest.mark.parametrize(("program", "steps"), PROGRAMS.values(), ids=PROGRAMS)
def test_it_is_stock_keras_on_the_device(strategy: Any, program: Callable[[], list[Any]], steps: int) -> None:
    if ON_JAX and program is _adversaries:
        pytest.skip("the step of this model is TensorFlow's")
    with strategy.scope(), device_work() as work:
        ours = program()
    assert work.counts.steps == steps
    for got, wanted in zip(ours, program(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=TIGHT, atol=TIGHT)
