"""Programs that call `train_function` and its kin themselves find what the steps changed, as in stock Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import numbers
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

pytestmark = pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="on JAX these functions take the state and return the new one"
)
X, Y = numbers(20, 6), numbers(20, 3)


def _model(steps_per_execution: int = 1) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((6,)), layers.Dense(4, "tanh"), layers.Dense(3)])
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"], steps_per_execution=steps_per_execution)
    return model


def _batches() -> Any:
    return iter(tf.data.Dataset.from_tensor_slices((X, Y)).batch(8))


def _trained(steps_per_execution: int) -> dict[str, Any]:
    model = _model(steps_per_execution)
    model.make_train_function()
    batches = _batches()
    logs = [model.train_function(batches) for _ in range(3 if steps_per_execution == 1 else 1)]
    weights = model.get_weights()  # before anything else runs, which would write them back
    slots = [variable.numpy() for variable in model.optimizer.variables]
    return {"logs": logs, "weights": weights, "slots": slots, "metrics": model.get_metrics_result()}


def _tested() -> dict[str, Any]:
    model = _model()
    model.make_test_function()
    return {"logs": model.test_function(_batches()), "metrics": model.get_metrics_result()}


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_weights_slots_and_metrics_after_a_train_function(strategy: Any, steps_per_execution: int) -> None:
    wanted = _trained(1)  # stock Keras's logs of several steps are those of the last one
    with strategy.scope(), device_work() as work:
        found = _trained(steps_per_execution)
    assert work.counts.steps == 3
    for logs in (wanted, found):
        logs["logs"] = logs["logs"][-1]
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, wanted)


def test_metrics_after_a_test_function(strategy: Any) -> None:
    wanted = _tested()
    with strategy.scope():
        found = _tested()
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, wanted)


def test_of_another_model_in_a_callback(strategy: Any) -> None:
    def judged() -> list[float]:
        judge, sizes = _model(), []
        judge.make_train_function()
        batches = _batches()

        def train_judge(batch: int, logs: Any) -> None:
            judge.train_function(batches)
            sizes.append(float(np.abs(judge.get_weights()[0]).sum()))

        callback = keras.callbacks.LambdaCallback(on_train_batch_end=train_judge)
        _model().fit(X, Y, batch_size=8, verbose=0, callbacks=[callback])
        return sizes

    wanted = judged()
    with strategy.scope():
        np.testing.assert_allclose(judged(), wanted, rtol=1e-5)
