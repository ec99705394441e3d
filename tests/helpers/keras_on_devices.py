"""Tests of pipelined Keras models on four JAX devices: run by `test_pipeline_run.py`."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from ipu_tf.pipeline import PipelineDevicesError, pipelines_on_one_device, run_on_devices
from tests.helpers.pipeline_on_devices import (  # noqa: F401 - a fixture
    counted,
    devices_of,
    four_ipus,
    momentum,
    same,
    strategy,
)


@four_ipus
def test_a_keras_model(strategy: Any) -> None:  # noqa: F811
    x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    y = np.arange(64) % 3

    def trained(mode: Any) -> tuple[list[Any], list[list[int]]]:
        run_on_devices(mode)
        keras.utils.set_random_seed(1)
        layers = keras.layers
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.Input((8,)),
                    layers.Dense(16, activation="relu", kernel_regularizer="l2"),
                    layers.BatchNormalization(),
                    layers.Dropout(0.3, seed=3),
                    layers.Dense(3),
                ]
            )
            assignment = model.get_pipeline_stage_assignment()
            for assigned, stage in zip(assignment, (0, 1, 1, 2), strict=True):
                assigned.pipeline_stage = stage
            model.set_pipeline_stage_assignment(assignment)
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=6)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(momentum(), loss, metrics=["accuracy"], steps_per_execution=6)
        history = model.fit(x[:48], y[:48], batch_size=4, verbose=0, shuffle=False).history
        where = [devices_of(v.value) for v in model.trainable_variables] if mode == "devices" else []
        tested = model.evaluate(x[:48], y[:48], batch_size=4, verbose=0)
        predicted = model.predict(x[:24], batch_size=4, verbose=0)
        return [*history.values(), tested, predicted, *model.get_weights()], where

    wanted, _ = trained("loop")
    found, where = trained("devices")
    same([np.asarray(value) for value in wanted], [np.asarray(value) for value in found])
    assert where == [[0], [0], [1], [1], [2], [2]]


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_a_keras_model_of_other_inputs(strategy: Any, kind: str) -> None:  # noqa: F811
    """Keras gives a call a structure of masks where inputs are several, also where all are `None`."""
    rng, layers = np.random.default_rng(0), keras.layers
    a, b = (rng.normal(size=(32, 5, 4)).astype(np.float32) for _ in range(2))

    def trained(mode: Any) -> list[Any]:
        run_on_devices(mode)
        keras.utils.set_random_seed(1)
        with strategy.scope():
            first, second = keras.Input((5, 4), name="a"), keras.Input((5, 4), name="b")
            given = [first, second] if kind == "list" else {"b": second, "a": first}
            x = layers.Dense(6)(layers.Subtract()([first, second]))
            model = keras.Model(given, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))
            assignment = model.get_pipeline_stage_assignment()
            for place, assigned in enumerate(assignment):
                assigned.pipeline_stage = int(place == len(assignment) - 1)
            model.set_pipeline_stage_assignment(assignment)
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
            model.compile(momentum(), "mse", steps_per_execution=4)
        data = [a, b] if kind == "list" else {"a": a, "b": b}
        history = model.fit(data, a[:, 0, :3], batch_size=4, verbose=0, shuffle=False).history
        assert mode == "loop" or counted().passes == 1  # of the last execution
        return [*history.values(), *model.get_weights()]

    same([np.asarray(value) for value in trained("loop")], [np.asarray(value) for value in trained("devices")])


class CountsUpdates(keras.Model):
    """Shows the number of updates, which the step itself changes."""

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        logs = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**logs, "updates": keras.ops.convert_to_tensor(self.optimizer.iterations)}


def test_what_the_update_changes_is_not_shown_by_the_last_stage(strategy: Any) -> None:  # noqa: F811
    x = np.ones((16, 4), np.float32)

    def trained(mode: Any) -> Any:
        run_on_devices(mode)
        with strategy.scope():
            inputs = keras.Input((4,))
            model = CountsUpdates(inputs, keras.layers.Dense(4)(keras.layers.Dense(4)(inputs)))
            assignment = model.get_pipeline_stage_assignment()
            for stage, assigned in enumerate(assignment):
                assigned.pipeline_stage = stage
            model.set_pipeline_stage_assignment(assignment)
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=4)
            model.compile("sgd", "mse", steps_per_execution=4)
        return model.fit(x, x, batch_size=4, verbose=0).history["updates"]

    assert trained("loop") == [1]
    with pytest.raises(PipelineDevicesError, match="it gives a value that the update changes"):
        trained("devices")
    assert trained("auto") == [1]
    assert any("it gives a value that the update changes" in text for text in pipelines_on_one_device())
