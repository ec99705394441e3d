"""A first step that makes slots and metrics is traced once, with the results of stock Keras, which traces it twice."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import TIGHT, numbers
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]
BATCH = 8
X, Y = numbers(BATCH * 4, 6), numbers(BATCH * 4, 3)
OPTIMIZERS = {
    "adam": keras.optimizers.Adam,
    "momentum, moving average": lambda: keras.optimizers.SGD(0.1, momentum=0.9, use_ema=True),
    "ftrl, which starts slots from a constant": lambda: keras.optimizers.Ftrl(0.1, initial_accumulator_value=0.2),
}


class Counting(layers.Layer):
    """Counts how often each step is traced."""

    def __init__(self) -> None:
        super().__init__()
        object.__setattr__(self, "traces", [])

    def call(self, inputs: Any, training: bool = False) -> Any:
        self.traces.append("train" if training else "test")
        return inputs


class OwnStep(keras.Model):
    """Has a step of its own, which uses what Keras's optimizer and metrics are at the time."""

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        return {**logs, "metrics": float(len(self.metrics))}


def _model(optimizer: Any, weighted: list[Any] | None = None, kind: type[keras.Model] = keras.Model) -> Any:
    inputs = keras.Input((6,))
    kernel = keras.initializers.RandomNormal(seed=1)
    hidden = layers.Dense(5, "tanh", name="hidden", kernel_initializer=kernel)(inputs)
    counting = Counting()
    counted = counting(hidden)
    outputs = [layers.Dense(3, kernel_initializer=kernel, name=name)(counted) for name in ("one", "two")]
    model = kind(inputs, outputs)
    counting.traces.clear()
    object.__setattr__(model, "traces", counting.traces)
    model.compile(optimizer, ["mse", "mae"], metrics=[["mae", "accuracy"], ["mse"]], weighted_metrics=weighted)
    return model


def _history(model: Any) -> dict[str, list[float]]:
    told = model.fit(X, [Y, Y], batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
    found = model.evaluate(X, [Y, Y], batch_size=BATCH, verbose=0, return_dict=True)
    return {**told, **{f"evaluated_{name}": [value] for name, value in found.items()}}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_that_makes_slots_and_metrics_is_traced_once(strategy: Any, name: str) -> None:
    weighted = [["mae"], ["mse"]]
    stock = _model(OPTIMIZERS[name](), weighted)
    expected = _history(stock)
    with strategy.scope():
        model = _model(OPTIMIZERS[name](), weighted)
        with device_work() as work:
            found = _history(model)
    assert work.counts.executions > 0
    assert model.traces == ["train", "test"]
    _assert_same(model, found, stock, expected)


def _assert_same(model: Any, found: dict[str, list[float]], stock: Any, expected: dict[str, list[float]]) -> None:
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        np.testing.assert_allclose(found[key], values, rtol=TIGHT, atol=TIGHT)
    for mine, theirs in zip(model.optimizer.variables, stock.optimizer.variables, strict=True):
        assert mine.path.split("/")[-1] == theirs.path.split("/")[-1]
        np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=TIGHT, atol=TIGHT)


@pytest.mark.parametrize("kind", [keras.Model, OwnStep])
def test_a_step_that_depends_on_what_is_built_is_traced_again(strategy: Any, kind: type[keras.Model]) -> None:
    """A loss scale is a constant, and metrics are not all there, until the first step has been traced."""

    def scaling() -> Any:
        return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1), 64.0, dynamic_growth_steps=3)

    stock = _model(scaling() if kind is keras.Model else "sgd", kind=kind)
    expected = _history(stock)
    with strategy.scope():
        model = _model(scaling() if kind is keras.Model else "sgd", kind=kind)
        with device_work() as work:
            found = _history(model)
    assert work.counts.executions > 0
    assert model.traces.count("train") == 2
    _assert_same(model, found, stock, expected)


def test_metrics_that_are_made_anew_are_traced_once_again(strategy: Any) -> None:
    with strategy.scope():
        model = _model("sgd")
        _history(model)
        model.compile("adam", ["mse", "mse"], metrics=[["mae"], ["mae"]])
        _history(model)
    assert model.traces == ["train", "test"] * 2
