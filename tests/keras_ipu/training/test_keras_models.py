"""Every way to make a model, optimizers, losses, metrics and steps per execution: the same numbers as stock Keras."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.helpers.keras_parity import (
    LOOSE,
    TIGHT,
    Program,
    assert_same_numbers,
    assert_same_seen,
    configure,
    counted,
    integers,
    ipu_scope,
    numbers,
    weights_of,
)

X = numbers(40, 5)
Y = numbers(40, 3, seed=2)
LABELS = integers(3, 40)
ONE_HOT = np.eye(3, dtype=np.float32)[LABELS]


def dense() -> keras.Model:
    """Two dense layers to 3 units."""
    return keras.Sequential([keras.Input((5,)), layers.Dense(4, "tanh"), layers.Dense(3)])


def classifier() -> keras.Model:
    """The same to 3 probabilities."""
    return keras.Sequential([keras.Input((5,)), layers.Dense(4, "tanh"), layers.Dense(3, "softmax")])


def unbuilt() -> keras.Model:
    """A Sequential that learns its input's shape from the data."""
    return keras.Sequential([layers.Dense(4, "tanh"), layers.Dense(3)])


class Subclassed(keras.Model):
    """Residual dense layers with dropout switched by `training`."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = layers.Dense(5, "tanh")
        self.drop = layers.Dropout(0.5)
        self.outer = layers.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        """`[batch, 5]` to `[batch, 3]`."""
        return self.outer(x + self.drop(self.inner(x), training=training))


def branched() -> keras.Model:
    """Two inputs by name, two outputs by name."""
    left, right = keras.Input((5,), name="left"), keras.Input((2,), name="right")
    both = layers.Concatenate()([layers.Dense(4, "tanh")(left), right])
    return keras.Model(
        {"left": left, "right": right},
        {"size": layers.Dense(3, name="size")(both), "kind": layers.Dense(3, "softmax", name="kind")(both)},
    )


MODELS = [
    Program("sequential", dense, X, Y, metrics=lambda: ["mae"], rtol=TIGHT),
    Program("unbuilt", unbuilt, X, Y, metrics=lambda: ["mae"], rtol=TIGHT),
    Program("subclassed", Subclassed, X, Y, metrics=lambda: ["mae"], rtol=TIGHT),
    Program(
        "branched",
        branched,
        {"left": X, "right": numbers(40, 2)},
        {"size": Y, "kind": LABELS},
        loss={"size": "mse", "kind": "sparse_categorical_crossentropy"},
        metrics=lambda: {"size": ["mae"], "kind": ["accuracy"]},
        rtol=TIGHT,
        compiled={"loss_weights": {"size": 0.5, "kind": 2.0}},
    ),
]


@pytest.mark.parametrize("program", MODELS, ids=lambda program: program.name)
def test_a_model_trains_as_on_stock_keras(program: Program) -> None:
    program.check()


OPTIMIZERS: dict[str, Callable[[], keras.optimizers.Optimizer]] = {
    "nesterov": lambda: keras.optimizers.SGD(0.05, nesterov=True, momentum=0.9, weight_decay=0.01),
    "decayed_sgd": lambda: keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 5, 0.5)),
    "clipped_amsgrad": lambda: keras.optimizers.Adam(
        keras.optimizers.schedules.CosineDecay(0.01, 20), amsgrad=True, global_clipnorm=0.5
    ),
    "averaged_adam": lambda: keras.optimizers.Adam(0.01, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=5),
    "accumulated_adam": lambda: keras.optimizers.Adam(0.01, gradient_accumulation_steps=4),
    "adamw": lambda: keras.optimizers.AdamW(0.01, clipvalue=0.1),
    "adamax": lambda: keras.optimizers.Adamax(0.01),
    "adagrad": lambda: keras.optimizers.Adagrad(0.05),
    "adadelta": lambda: keras.optimizers.Adadelta(0.5),
    "adafactor": lambda: keras.optimizers.Adafactor(0.01),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.005, momentum=0.5, centered=True),
    "nadam": lambda: keras.optimizers.Nadam(0.01),
    "ftrl": lambda: keras.optimizers.Ftrl(0.05),
    "lion": lambda: keras.optimizers.Lion(0.001),
    "lamb": lambda: keras.optimizers.Lamb(0.01),
    "muon": lambda: keras.optimizers.Muon(0.01),
    "loss_scale": lambda: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(0.05), initial_scale=64.0, dynamic_growth_steps=5
    ),
}


SLOW = frozenset(["adamax", "adagrad", "adadelta", "adafactor", "rmsprop", "nadam", "ftrl", "lion", "lamb", "muon"])
"""What `test_keras_tables.py` has of them as well, of fewer steps."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in OPTIMIZERS]
)
def test_an_optimizer_changes_weights_as_on_stock_keras(name: str) -> None:
    Program(name, dense, X, Y, optimizer=OPTIMIZERS[name], rtol=LOOSE).check()


def named_losses() -> dict[str, Any]:
    """The usual losses of two arrays of one shape, under their own names."""
    kinds = [
        keras.losses.MeanAbsoluteError,
        keras.losses.MeanSquaredLogarithmicError,
        keras.losses.Huber,
        keras.losses.LogCosh,
        keras.losses.CosineSimilarity,
        keras.losses.KLDivergence,
        keras.losses.Poisson,
        keras.losses.BinaryCrossentropy,
        keras.losses.BinaryFocalCrossentropy,
        keras.losses.CategoricalCrossentropy,
        keras.losses.CategoricalHinge,
        keras.losses.Hinge,
        keras.losses.Tversky,
    ]
    return {kind.__name__.lower(): kind() for kind in kinds}


def test_losses() -> None:
    losses = named_losses()

    def many() -> keras.Model:
        x = keras.Input((5,))
        return keras.Model(x, {name: layers.Dense(3, "softmax", name=name)(x) for name in losses})

    Program("losses", many, X, dict.fromkeys(losses, ONE_HOT), losses).check()


def every_metric() -> list[Any]:
    """Metrics of every kind of state: sums, confusion tables, thresholds."""
    return [
        "accuracy",
        "mse",
        keras.metrics.RootMeanSquaredError(),
        keras.metrics.Precision(),
        keras.metrics.AUC(num_thresholds=20),
        keras.metrics.F1Score(average="macro"),
        keras.metrics.OneHotMeanIoU(3),
    ]


def test_metrics() -> None:
    Program("metrics", classifier, X, ONE_HOT, "categorical_crossentropy", every_metric).check()


def test_steps_per_execution_does_not_change_a_bit() -> None:
    def build() -> keras.Model:
        inner = [layers.Conv2D(3, 3), layers.BatchNormalization(), layers.Dropout(0.3), layers.Flatten()]
        return keras.Sequential([keras.Input((5, 5, 2)), *inner, layers.Dense(3)])

    x, y = numbers(64, 5, 5, 2), numbers(64, 3)
    program = Program("", build, x, y, metrics=lambda: ["mae"])
    one, four, sixteen = (program.run_device(steps_per_execution) for steps_per_execution in (1, 4, 16))
    assert one.device.executions < 48  # which ran ahead
    assert [seen.device.executions for seen in (four, sixteen)] == [12, 3]
    assert one.device.steps == four.device.steps == sixteen.device.steps == 48
    for other in (four, sixteen):
        assert_same_seen(dataclasses.replace(other, weights=one.weights), one, rtol=0)
        np.testing.assert_equal(list(other.weights.values()), list(one.weights.values()))


def test_predictions_have_the_structure_of_the_model() -> None:
    def predict(model: keras.Model, **compiled: Any) -> Any:
        model.compile("sgd", "mse", **compiled)
        return model.predict({"left": X, "right": X[:, :2]}, batch_size=4, verbose=0)

    keras.utils.set_random_seed(1)
    wanted = predict(branched())
    configure()
    keras.utils.set_random_seed(1)
    with ipu_scope():
        model = branched()
    with counted() as device:
        found = predict(model, steps_per_execution=5)
    assert (device().executions, device().steps) == (2, 10)
    assert {name: value.shape for name, value in found.items()} == {"size": (40, 3), "kind": (40, 3)}
    assert_same_numbers(found, wanted, TIGHT)


class ClippedModel(keras.Model):
    """A train step of its own that clips gradients by value and reports their norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = layers.Dense(3)
        self.norm = keras.metrics.Mean(name="norm")

    def call(self, x: Any) -> Any:
        """`[batch, 5]` to `[batch, 3]`, through TensorFlow's own functions."""
        return self.layer(tf.nn.relu(tf.sort(x, axis=-1)) + tf.cumsum(x, axis=-1))

    def train_step(self, data: Any) -> Any:
        """One step."""
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        gradients = tape.gradient(loss, self.trainable_variables)
        norm = tf.linalg.global_norm(gradients)
        clipped = [tf.clip_by_value(gradient, -0.1, 0.1) for gradient in gradients]
        self.optimizer.apply_gradients(zip(clipped, self.trainable_variables, strict=True))
        self.norm.update_state(norm)
        return {"loss": loss, "norm": self.norm.result(), "step": tf.cast(self.optimizer.iterations, tf.float32)}


def test_a_train_step_of_its_own_runs_on_the_device() -> None:
    Program("", ClippedModel, X, Y).check()


class Penalised(layers.Layer):
    """Adds a loss and counts its calls in a variable that is not trained."""

    def build(self, shape: Any) -> None:
        """Makes the counter."""
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, x: Any, training: bool = False) -> Any:
        """The input."""
        self.add_loss(0.1 * keras.ops.mean(keras.ops.abs(x)))
        if training:
            self.calls.assign_add(1.0)
        return tf.where(x > 0, x, 0.1 * x)


def test_added_losses_and_state_of_layers() -> None:
    def build() -> keras.Model:
        regular = layers.Dense(4, kernel_regularizer="l2", kernel_constraint=keras.constraints.MaxNorm(0.8))
        return keras.Sequential([keras.Input((5,)), regular, Penalised(), layers.Dense(3)])

    Program("", build, X, Y).check()


def test_frozen_layers_stay() -> None:
    def build() -> keras.Model:
        model = keras.Sequential([keras.Input((5,)), layers.BatchNormalization(), layers.Dense(3), layers.Dense(3)])
        model.layers[0].trainable = model.layers[1].trainable = False
        return model

    Program("", build, X, Y).check()


def test_a_model_made_outside_the_scope_stays_stock() -> None:
    configure()
    with ipu_scope():
        on_device = dense()
    stock = dense()
    for model in (stock, on_device):
        model.compile("sgd", "mse")
    with counted() as device:
        stock.fit(X, Y, batch_size=16, verbose=0)  # with a partial batch, which the device would refuse
        assert (device().programs, device().executions) == (0, 0)
        on_device.fit(X, Y, batch_size=4, verbose=0)
        assert (device().programs, device().steps) == (1, 10)
        on_device_alone = device()
        stock.predict(X, verbose=0)
        assert device() == on_device_alone


def test_an_optimizer_made_outside_the_scope() -> None:
    def losses(model: keras.Model, optimizer: Any) -> list[float]:
        model.compile(optimizer, "mse")
        return model.fit(X, Y, batch_size=4, epochs=2, verbose=0, shuffle=False).history["loss"]

    keras.utils.set_random_seed(1)
    wanted = losses(dense(), "adam")
    configure()
    for optimizer in ("adam", keras.optimizers.Adam()):
        keras.utils.set_random_seed(1)
        with ipu_scope():
            model = dense()
        with counted() as device:
            np.testing.assert_allclose(losses(model, optimizer), wanted, rtol=LOOSE)
        assert device().steps == 20


@pytest.mark.parametrize("made_inside", [True, False])
def test_an_optimizer_of_several_wherever_it_was_made(made_inside: bool) -> None:
    def several() -> keras.optimizers.Optimizer:
        of_biases = {".*/bias": keras.optimizers.Adam(0.05)}
        parts = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1, momentum=0.9), of_biases)
        return keras.optimizers.MultiOptimizer(parts)

    def losses(model: keras.Model, optimizer: Any) -> list[float]:
        model.compile(optimizer, "mse")
        return model.fit(X, Y, batch_size=4, epochs=2, verbose=0, shuffle=False).history["loss"]

    keras.utils.set_random_seed(1)
    wanted = losses(dense(), several())
    configure()
    keras.utils.set_random_seed(1)
    outside = several()
    with ipu_scope():
        model, optimizer = dense(), several() if made_inside else outside
    with counted() as device:
        np.testing.assert_allclose(losses(model, optimizer), wanted, rtol=LOOSE)
    assert device().steps == 20


def test_a_function_with_a_gradient_of_its_own_after_predict() -> None:
    """`predict` differentiates nothing; TensorFlow takes the function's trace again in `fit`."""

    @tf.custom_gradient
    def rounded(x: tf.Tensor) -> Any:
        return tf.round(x * 4.0) / 4.0, lambda gradient: gradient * 2.0

    def losses() -> list[float]:
        act = tf.function(lambda x: rounded(tf.nn.silu(x)))
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input((5,)), layers.Dense(4), layers.Lambda(act), layers.Dense(3)])
        model.compile("sgd", "mse")
        model.predict(X, batch_size=4, verbose=0)
        return model.fit(X, Y, batch_size=4, epochs=2, verbose=0, shuffle=False).history["loss"]

    wanted = losses()
    configure()
    with ipu_scope(), counted() as device:
        np.testing.assert_allclose(losses(), wanted, rtol=LOOSE)
    assert device().steps == 30


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_convolutional_network_of_mixed_precision(policy: str) -> None:
    images = numbers(8, 9, 9, 2)

    def seen() -> list[Any]:
        keras.utils.set_random_seed(1)
        parts = [layers.ZeroPadding2D(1), layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(2)]
        more = [layers.Conv2D(4, 3, padding="same"), layers.BatchNormalization(), layers.AveragePooling2D(2)]
        head = [layers.Flatten(), layers.Dense(3, dtype="float32")]
        model = keras.Sequential([keras.Input((9, 9, 2)), *parts, *more, *head])
        model.compile("sgd", "mse")
        history = model.fit(images, Y[:8], batch_size=4, epochs=2, verbose=0, shuffle=False).history["loss"]
        return [history, model.predict(images, batch_size=4, verbose=0), *model.get_weights()]

    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        wanted = seen()
        configure()
        with ipu_scope(), counted() as device:
            found = seen()
    finally:
        keras.config.set_dtype_policy(before)
    assert device().steps == 6
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0.05, atol=0.02)


def test_a_second_fit_compiles_nothing() -> None:
    configure()
    with ipu_scope():
        model = dense()
        model.compile("adam", "mse", steps_per_execution=5)
    with counted() as device:
        model.fit(X, Y, batch_size=4, verbose=0, validation_data=(X, Y))
        first = device()
        model.optimizer.learning_rate = 0.5
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0, validation_data=(X, Y))
        model.evaluate(X, Y, batch_size=4, verbose=0)
    assert (first.programs, first.executions, first.steps) == (2, 4, 20)
    assert (device().programs, device().executions, device().steps) == (2, 4 + 8 + 2, 20 + 40 + 10)
    assert len(weights_of(model)) == 4
