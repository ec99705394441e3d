"""`keras_ipu.debug.check_parity` passes splits that train as plain Keras, and fails those that do not."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ipu import debug
from keras_ipu.debug import check_parity
from keras_ipu.parity.report import ParityReport, difference
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus
from tests.keras_ipu.training.test_keras_split import OPTIMIZERS, Subclassed, functional, sequential, stages_for

BATCH = 4


def samples(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(count, 20)).astype(np.float32), rng.integers(0, 5, count).astype(np.int32)


def compiled(model: keras.Model, stages: int = 1, count: int = 1, method: str = "sum", **told: Any) -> keras.Model:
    if stages > 1:
        stages_for(model, stages)
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=count, gradient_accumulation_reduction_method=method
        )
    elif count > 1:
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=count, gradient_accumulation_reduction_method=method
        )
    told = {"optimizer": keras.optimizers.SGD(0.05, momentum=0.9)} | told
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), **told)
    return model


def normalized() -> keras.Model:
    """Moving statistics differ between replicas and change with each micro-batch."""
    layers = keras.layers
    return keras.Sequential([keras.Input((20,)), layers.Dense(8), layers.BatchNormalization(), layers.Dense(5)])


CASES = [
    # model, replicas, stages, micro-batches, reduction
    (sequential, 2, 2, 4, "mean"),
    (functional, 1, 2, 4, "sum"),
    (normalized, 2, 1, 3, "running_mean"),
]


@pytest.mark.parametrize(("make", "replicas", "stages", "count", "method"), CASES)
def test_a_split_model_trains_as_plain_keras(make: Any, replicas: int, stages: int, count: int, method: str) -> None:
    with ipus(replicas * stages) as strategy, strategy.scope(), device_work() as work:
        model = compiled(make(), stages, count, method, metrics=["accuracy"])
        report = check_parity(model, samples(), updates=3, batch_size=BATCH, show=False)
    assert report.passed, str(report)
    assert work.counts.steps == 3 * count
    assert [each.name for each in report.logs] == ["loss"]
    assert report.logs[0].shape == (3 * count * replicas,)
    assert report.gradient_norm.shape == (3,)
    assert report.gradient_norm.largest > 0
    assert len(report.variables) == len(model.weights)


def test_subclassed_models_can_be_made_anew() -> None:
    class Odd(Subclassed):
        def get_config(self) -> Any:
            raise NotImplementedError("no config")

    with ipus(2) as strategy:
        with strategy.scope():
            model = Odd()
            model(np.zeros((1, 20), np.float32))
            compiled(model, count=2, optimizer=OPTIMIZERS["scaled"]())
        with pytest.raises(
            ValueError, match="cannot be made anew from its config: no config Give `check_parity` a fun"
        ):
            check_parity(model, samples(), show=False)
        dataset = tf.data.Dataset.from_tensor_slices(samples()).batch(BATCH, drop_remainder=True)
        assert check_parity(model, dataset, updates=2, make=Odd, show=False).passed


def test_the_user_s_model_stays_as_it_is() -> None:
    x, y = samples(80)
    with ipus(2) as strategy, strategy.scope():
        model = compiled(normalized(), optimizer=keras.optimizers.Adam(0.01))
        model.fit(x, y, BATCH, verbose=0)
        before = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
        function, history = model.train_function, model.history
        report = check_parity(model, (x, y), updates=2, batch_size=BATCH, show=False)
        after = [variable.numpy() for variable in (*model.variables, *model.optimizer.variables)]
    for mine, theirs in zip(after, before, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert model.train_function is function
    assert model.history is history
    assert report.passed, str(report)
    # The normalization takes away what a bias in front of it adds.
    assert [each.name.split("/")[-1] for each in report.variables if each.round_off] == ["bias"]
    assert "round-off" in str(report)


class Scaling(keras.layers.Layer):
    """Trains otherwise where it was made on the device."""

    def call(self, x: Any) -> Any:
        on_device = getattr(tf.distribute.get_strategy(), "num_ipus", 0) > 0
        return x * (1.5 if on_device else 1.0)


def test_a_difference_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with ipus(1) as strategy, strategy.scope():
        model = compiled(keras.Sequential([keras.Input((20,)), Scaling(), keras.layers.Dense(5)]))
        report = check_parity(model, samples(), updates=1, batch_size=BATCH)
    assert not report.passed
    assert {"loss", "gradient norm"} <= {each.name for each in report.failures}
    shown = capsys.readouterr().out
    assert shown == f"{report}\n"
    assert "1 replica x 1 micro-batch an update x 1 IPU a replica, against plain Keras: 1 weight updates" in shown
    assert "NO PARITY: " in shown
    assert "DIFFERS" in shown


def test_random_layers_and_half_precision_are_allowed_for() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        with ipus(1) as strategy, strategy.scope():
            layers = [keras.Input((20,)), keras.layers.Dropout(0.1), keras.layers.Dense(5, dtype="float32")]
            report = check_parity(compiled(keras.Sequential(layers)), samples(), updates=1, show=False)
    finally:
        keras.config.set_dtype_policy("float32")
    assert report.rtol == 2e-2
    assert "draws random numbers" in report.notes[0]


@pytest.mark.parametrize("scales", [True, False])
def test_a_loss_is_scaled_where_the_model_scales_it(scales: bool) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        with ipus(1) as strategy, strategy.scope():
            model = compiled(sequential(), auto_scale_loss=scales)
            report = check_parity(model, samples(), updates=1, batch_size=BATCH, show=False)
    finally:
        keras.config.set_dtype_policy("float32")
    assert report.passed, str(report)
    assert report.gradient_norm.largest > (1000 if scales else 0)


def test_what_cannot_be_compared() -> None:
    stock = sequential()
    with pytest.raises(ValueError, match="was not made in the scope of an IPUStrategy"):
        check_parity(stock, samples())
    with ipus(1) as strategy, strategy.scope():
        model = sequential()
        with pytest.raises(ValueError, match="is not compiled with an optimizer"):
            check_parity(model, samples())
        with pytest.raises(ValueError, match="has no weights to start from yet"):
            check_parity(compiled(keras.Sequential([keras.layers.Dense(5)])), samples())
        with pytest.raises(ValueError, match="has not a single batch"):
            check_parity(compiled(model), samples(3), batch_size=BATCH)


def test_differences_of_values_that_are_not_finite() -> None:
    nan, inf = float("nan"), float("inf")
    same = difference("x", np.array([nan, inf, 1.0]), np.array([nan, inf, 1.0]))
    assert (same.absolute, same.largest, same.relative) == (0.0, 1.0, 0.0)
    other = difference("x", np.array([nan]), np.array([1.0]))
    assert not other.within(1e-4, 1e-6)
    report = ParityReport("split", 1, 1e-4, 1e-6, (same,), (other,), same)
    assert report.failures == (other,)
    assert "1 of 3 differ too much" in report.verdict


def test_it_is_an_attribute_of_the_package() -> None:
    import keras_ipu

    assert keras_ipu.debug is debug


def test_the_example_explains_itself() -> None:
    command = [sys.executable, "examples/check_parity.py", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    for option in ("--replicas", "--accumulation", "--stages", "--updates"):
        assert option in done.stdout
