"""A program for Keras 2 that `tests/keras_ipu/legacy/test_keras_2.py` runs under the launcher."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.engine import base_layer
from keras.mixed_precision import policy
from keras.optimizer_v2 import gradient_descent
from tensorflow.python import ipu

X, Y = np.ones((8, 4), np.float32), np.ones((8, 1), np.float32)


def refused(kind: type[Exception], words: str, run: Callable[[], Any]) -> None:
    try:
        run()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"Nothing was raised. Wanted: {words}")


def two_outputs() -> keras.Model:
    x = keras.Input(4)
    return keras.Model(x, [keras.layers.Dense(1, name="first")(x), keras.layers.Dense(1, name="second")(x)])


def names() -> None:
    x = keras.Input(4)
    layer = keras.layers.Dense(3, name="inner")
    model = keras.Model(x, layer(x))
    assert x.name == x._keras_history.operation.name
    assert layer.get_output_at(0).name.partition("/")[0] == "inner"
    assert layer.get_input_at(0).get_shape().as_list() == [None, 4]
    assert [each.name for each in model._output_layers] == ["inner"]
    assert model._input_layers[0].get_output_at(0) is x
    model.compile("sgd", "mse")
    model.fit({x.name: X}, np.ones((8, 3), np.float32), 4, verbose=0)


def wordings() -> None:
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    uncompiled: tuple[type[Exception], ...] = (RuntimeError, ValueError)
    for kind in uncompiled:
        refused(kind, "You must compile your model before training/testing", lambda: model.evaluate(X, Y))
    no_layer: tuple[type[Exception], ...] = (TypeError, ValueError)
    for kind in no_layer:
        refused(kind, "The added layer must be an instance", lambda: keras.Sequential([[keras.layers.Dense(1)]]))


def metrics() -> None:
    model = two_outputs()
    model.compile("sgd", ["mse", "mse"], metrics=["mae"])
    shown = model.fit(X, (Y, Y), 4, verbose=0, validation_data=(X, (Y, Y))).history
    assert next(iter(shown)) == "loss"
    assert {"first_mae", "second_mae", "val_first_mae"} <= set(shown)
    assert [name.startswith("val_") for name in shown] == [False] * 5 + [True] * 5


def optimizers() -> None:
    optimizer = gradient_descent.SGD(0.5)
    models = [keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_initializer="ones")]) for _ in range(3)]
    models[0].compile(optimizer, "mse")
    models[1].compile(optimizer, "mse")
    assert models[0].optimizer is optimizer
    models[2].compile(tf.compat.v1.train.GradientDescentOptimizer(0.5), "mse")
    for model in models:
        model.fit(X, Y, 4, verbose=0)
        assert int(model.optimizer.iterations) == 2
        np.testing.assert_array_equal(model.get_weights()[0], models[0].get_weights()[0])


class OwnMinimize(gradient_descent.SGD):
    def minimize(self, loss: Any, var_list: Any) -> None:
        """Keras 3 calls no such method."""


def refusals() -> None:
    x = keras.Input(4)
    layer = keras.layers.Dense(4)
    model = keras.Model(x, layer(x))
    model.compile(OwnMinimize(0.1), "mse", steps_per_execution=2)
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
    refused(ValueError, "must not override OptimizerV2.minimize", lambda: model.fit(X, X, 4, verbose=0))
    with keras.ipu.PipelineStage(0):
        first = layer(x)
    with keras.ipu.PipelineStage(1):
        shared = keras.Model(x, layer(first))
    shared.compile("sgd", "mse", steps_per_execution=4)
    shared.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
    words = "an input can only be used by pipeline stages on the same IPU"
    refused(ValueError, words, lambda: shared.fit(X, X, 2, verbose=0))


def main() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    assert base_layer.Layer is keras.layers.Layer
    assert keras.backend.learning_phase() is False
    policy.set_policy("float32")
    with ipu.ipu_strategy.IPUStrategy().scope():
        report(refusals)
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        for check in (names, wordings, metrics, optimizers):
            report(check)


def report(check: Callable[[], None]) -> None:
    """Prints whether a check passes; a failed one does not end the program."""
    try:
        check()
    except Exception:  # noqa: BLE001 - each check is a test of its own
        print(f"{check.__name__}:", traceback.format_exc(), file=sys.stderr)
    else:
        print(f"{check.__name__}: as Keras 2 has it")


if __name__ == "__main__":
    main()
