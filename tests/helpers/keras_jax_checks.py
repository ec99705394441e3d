"""Tests of Keras models on the device that need KERAS_BACKEND=jax: run by `test_both_backends.py`.

Splits, options, callbacks and errors are checked by the same tests as on the TensorFlow backend, which `python -m
tests.helpers.keras_grid --backends jax` and `KERAS_BACKEND=jax pytest tests/keras_ipu/training/test_keras_split.py`
run; here is what is particular to JAX, and a sample of the rest.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import ipu_tf as ipu
from ipu_tf.device.convolution.convolve import convolution
from ipu_tf.emulation import EmulationError, ignored_arguments
from ipu_tf.pipeline import PipelineDevicesError, run_on_devices
from keras_ipu.scope import scope
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import TIGHT, Program, integers, numbers
from tests.helpers.keras_two_backends import RUNS, SAVED, trained
from tests.helpers.some_ipus import ipus
from tests.keras_ipu.training.test_keras_split import OPTIMIZERS, assert_same, on_device, plain

# Keras makes arrays of its variables in a way that NumPy 2 no longer likes.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

BATCH, STEPS = 4, 24
X, Y = numbers(BATCH * STEPS, 20), integers(5, BATCH * STEPS)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
SPLITS = [
    # replicas, micro-batches, stages, steps per execution, kind of model
    (1, 8, 4, 16, "functional"),
    (2, 4, 2, 12, "sequential"),
    (4, 8, 1, 24, "subclassed"),
]


@pytest.fixture(autouse=True, scope="module")
def no_tensorflow_functions() -> Iterator[None]:
    """TensorFlow traces nothing here."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("TensorFlow was asked to trace a function.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ipu_tf.lowering.tensorflow.tf_private.concrete_function", refuse)
        patch.setattr("ipu_tf._loops.tensorflow_step.TensorFlowStep.__init__", refuse)
        yield


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = layers.Dense(16, activation="relu")
        self.dropout = layers.Dropout(0.3)
        self.norm = layers.BatchNormalization()
        self.last = layers.Dense(5)

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.dropout(self.hidden(x), training=training)
        self.add_loss(0.01 * keras.ops.mean(x))
        return self.last(self.norm(x, training=training))


def sequential() -> keras.Model:
    parts = [layers.Dense(16, "tanh"), layers.Dropout(0.4), layers.BatchNormalization(), layers.Dense(5)]
    return keras.Sequential(parts)


def functional() -> keras.Model:
    x = keras.Input((20,))
    wide = layers.GaussianNoise(0.1)(layers.Dense(16, "tanh")(x))
    return keras.Model(x, layers.Dense(5)(layers.Concatenate()([wide, layers.Dense(16)(wide)])))


MODELS: dict[str, Callable[[], keras.Model]] = {
    "sequential": sequential,
    "functional": functional,
    "subclassed": Subclassed,
}


def adamw() -> keras.optimizers.Optimizer:
    return keras.optimizers.AdamW(keras.optimizers.schedules.ExponentialDecay(0.02, 4, 0.9), clipnorm=0.3)


@contextlib.contextmanager
def scope_of(count: int = 1) -> Iterator[None]:
    with ipus(count) as strategy, strategy.scope():
        yield


def everything(kind: str, where: contextlib.AbstractContextManager[Any], steps: int) -> list[Any]:
    """All that a model shows: logs, predictions, weights, the optimizer's variables. One does single batches too."""
    keras.utils.set_random_seed(3)
    with where:
        model = MODELS[kind]()
        model.compile(adamw(), LOSS, metrics=["accuracy"], steps_per_execution=steps)
        history = model.fit(X, Y, BATCH, epochs=2, verbose=0, validation_data=(X[:32], Y[:32])).history
        seen = [history[name] for name in sorted(history)]
        seen += [model.evaluate(X, Y, BATCH, verbose=0), model.predict(X, BATCH, verbose=0)]
        if kind == "functional":
            seen += [model.train_on_batch(X[:4], Y[:4]), model.test_on_batch(X[:4], Y[:4])]
            seen += [model.predict_on_batch(X[:4])]
    return [*seen, *model.get_weights(), *(variable.numpy() for variable in model.optimizer.variables)]


@pytest.mark.parametrize("kind", sorted(MODELS))
def test_not_a_bit_differs_from_stock_keras(kind: str) -> None:
    wanted = everything(kind, contextlib.nullcontext(), steps=1)
    single = 3 if kind == "functional" else 0
    for steps in (1, 8) if kind == "sequential" else (8,):
        with device_work() as work:
            found = everything(kind, scope_of(), steps)
        assert work.counts.steps == 2 * (STEPS + 8) + 2 * STEPS + single
        executions = (2 * (STEPS + 8) + 2 * STEPS) // steps + single
        assert work.counts.executions == executions if steps > 1 else work.counts.executions < executions
        assert len(found) == len(wanted)
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(("replicas", "count", "stages", "steps", "kind"), SPLITS)
def test_splitting_a_step_does_not_change_the_numbers(
    replicas: int, count: int, stages: int, steps: int, kind: str
) -> None:
    assert_same(on_device(replicas, count, stages, steps, kind), plain(replicas * count, kind))


def test_a_wrapped_optimizer_accumulates_exactly() -> None:
    make = OPTIMIZERS["scaled"]
    assert_same(on_device(1, 8, 1, 24, "sequential", make), plain(8, "sequential", make))


def test_each_micro_batch_has_batch_statistics_of_its_own() -> None:
    """As many batches of a model whose weights stay."""
    averages = []
    for where, rate, accumulated in ((scope_of(), 0.5, 8), (contextlib.nullcontext(), 0.0, 1)):
        keras.utils.set_random_seed(3)
        with where:
            model = keras.Sequential([keras.Input((20,)), layers.Dense(6), layers.BatchNormalization()])
            if accumulated > 1:
                model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulated)
            model.compile(keras.optimizers.SGD(rate), "mse", steps_per_execution=accumulated)
            model.fit(X[:32], X[:32, :6], BATCH, verbose=0, shuffle=False)
        averages.append([weight.numpy() for weight in model.layers[-1].non_trainable_weights])
    for mine, theirs in zip(*averages, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("method", "wanted"), [("NONE", 4.0), ("SUM", 10.0), ("MEAN", 2.5), ("LIST", [1.0, 2.0, 3.0, 4.0])]
)
def test_what_is_shown_of_every_replicas_metric(method: str, wanted: Any) -> None:
    x = np.repeat(np.arange(1.0, 5.0, dtype=np.float32), 2).reshape(8, 1)  # replica r sees r + 1
    with scope_of(4):
        model = keras.Sequential([keras.Input((1,)), layers.Rescaling(1.0)])
        model.set_replication_options(replicated_metric_reduction_method=method)
        model.compile(loss=lambda y, p: p)
        shown = model.evaluate(x, x, batch_size=2, verbose=0)
    np.testing.assert_allclose(np.array(shown, dtype=np.float32), wanted)


def test_replicas_keep_what_is_their_own_until_the_host_writes() -> None:
    """The last replica's moving mean, which only it can show: by a prediction of what it normalises."""
    x = np.array([[0], [8]] * 6, np.float32)  # replica 1 sees eights alone
    with scope_of(2):
        model = keras.Sequential([keras.Input((1,)), layers.BatchNormalization(momentum=0.5, epsilon=1.0)])
        model.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=3)
        model.fit(x, x, batch_size=1, shuffle=False, verbose=0, epochs=1)
        model.layers[0].moving_variance.assign([0.0])
        zero, eight = model.predict(x[1::2][:2], batch_size=1, verbose=0).ravel()
        assert model.layers[0].moving_mean.numpy() == 0.0  # that of replica 0
        model.layers[0].moving_mean.assign([8.0])
        written = model.predict(x[1::2][:2], batch_size=1, verbose=0).ravel()
    np.testing.assert_allclose([zero, eight], [8.0, 8.0 / 2**6], rtol=1e-6)
    np.testing.assert_array_equal(written, [0.0, 0.0])


def test_averaged_logs_of_a_pipeline() -> None:
    x = np.repeat(np.arange(8, dtype=np.float32), 2).reshape(16, 1)
    with scope_of(2):
        model = keras.Sequential([keras.Input((1,)), layers.Rescaling(1.0), layers.Rescaling(1.0)])
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8, accumulate_outfeed=True)
        model.compile("sgd", loss=lambda y, p: p, steps_per_execution=8)
        seen: list[float] = []
        watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: seen.append(float(logs["loss"])))
        model.fit(x, x, batch_size=2, shuffle=False, verbose=0, callbacks=[watch])
    # The loss so far after each of the micro-batches, averaged.
    np.testing.assert_allclose(seen, [np.mean([np.mean(range(n + 1)) for n in range(8)])], rtol=1e-6)


def test_a_mode_of_recomputation_is_said_to_do_nothing() -> None:
    mode = ipu.pipelining_ops.RecomputationMode.RecomputeThenBackpropagate
    with scope_of(2):
        model = keras.Sequential([keras.Input((20,)), layers.Dense(16), layers.Dense(5)])
        model.set_pipeline_stage_assignment([0, 1])
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=8, recomputation_mode=mode)
        model.compile("sgd", LOSS, steps_per_execution=8)
        model.fit(X, Y, BATCH, verbose=0)
    [said] = [each for each in ignored_arguments() if each.name == "pipeline.recomputation_mode"]
    assert said.reason.startswith("with Keras on JAX the pipeline is one loop on one device")


def cnn() -> keras.Model:
    convolved = layers.Conv2D(4, 3, activation="relu")
    return keras.Sequential(
        [keras.Input((8, 8, 3)), convolved, layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(3)]
    )


def test_convolutions_are_planned_and_train_as_on_stock_keras(monkeypatch: pytest.MonkeyPatch) -> None:
    problems: list[Any] = []
    stock = convolution

    def noted(*operands: Any, **window: Any) -> Any:
        problems.append(window)
        return stock(*operands, **window)

    monkeypatch.setattr("ipu_tf.lowering.jax.jaxpr_plans.convolution", noted)
    Program("cnn", cnn, numbers(40, 8, 8, 3), integers(3, 40), LOSS, rtol=TIGHT).check()
    assert len(problems) >= 3  # forward and the filters' gradient in fit, forward in evaluate


class OwnSteps(keras.Sequential):
    """Steps of its own, that add one to the loss they show."""

    def train_step(self, state: Any, data: Any) -> Any:
        logs, state = super().train_step(state, data)
        return {"loss": logs["loss"] + 1}, state

    def predict_step(self, state: Any, data: Any) -> Any:
        outputs, state = super().predict_step(state, data)
        return {"doubled": 2 * outputs}, state


def test_steps_of_the_models_own_run_on_the_device() -> None:
    def run(where: contextlib.AbstractContextManager[Any]) -> list[Any]:
        keras.utils.set_random_seed(3)
        with where:
            model = OwnSteps([keras.Input((20,)), layers.Dense(5)])
            model.compile("sgd", LOSS, steps_per_execution=4)
            data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=True)
            return [
                model.fit(data, shuffle=False, verbose=0).history["loss"],
                model.predict(X, BATCH, verbose=0)["doubled"],
            ]

    with device_work() as work:
        found = run(scope_of())
    assert (work.counts.executions, work.counts.steps) == (2 * STEPS // 4, 2 * STEPS)
    for mine, theirs in zip(found, run(contextlib.nullcontext()), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def dense(where: contextlib.AbstractContextManager[Any], **compiled: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    with where:
        model = keras.Sequential([keras.Input((20,)), layers.Dense(5)])
        model.compile(keras.optimizers.SGD(0.1), LOSS, **compiled)
    return model


def test_callbacks_see_and_change_the_model() -> None:
    """At every execution: the weights, held on to; the learning rate; a stock model trained in between."""

    def run(where: contextlib.AbstractContextManager[Any], stock: bool) -> list[Any]:
        other = dense(contextlib.nullcontext())
        seen: list[Any] = []

        def look(batch: int, logs: Any) -> None:
            if stock:
                model.jax_state_sync()  # without it stock Keras has no weights to show
            seen.append(model.get_weights())
            model.optimizer.learning_rate = 0.1 / (batch + 1)
            seen.append([other.fit(X[:8], Y[:8], BATCH, verbose=0).history["loss"]])
            model.stop_training = batch >= 11

        with where:
            model = dense(contextlib.nullcontext(), steps_per_execution=4)
            watch = keras.callbacks.LambdaCallback(on_train_batch_end=look)
            model.fit(X, Y, BATCH, verbose=0, shuffle=False, callbacks=[watch])
        return [*seen, model.get_weights()]

    found, wanted = run(scope_of(), False), run(contextlib.nullcontext(), True)
    assert len(found) == len(wanted) == 7
    for mine, theirs in zip(found, wanted, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            np.testing.assert_array_equal(one, other)


def test_weights_that_became_their_averages_train_on() -> None:
    """Keras leaves one array in a weight and in its average; a run takes over the arrays that it is given."""

    def run(where: contextlib.AbstractContextManager[Any], helped: bool) -> list[Any]:
        seen: list[Any] = []
        with where:
            model = dense(contextlib.nullcontext())
            model.compile(keras.optimizers.Adam(0.1, use_ema=True, ema_momentum=0.8), LOSS)
            for _ in range(2):
                seen.append(model.fit(X, Y, BATCH, verbose=0, shuffle=False).history["loss"])
                if helped:  # stock Keras on JAX fails where an array is given away twice
                    model.set_weights([np.array(weight) for weight in model.get_weights()])
                seen.append(model.evaluate(X, Y, BATCH, verbose=0))
                seen += [variable.numpy() for variable in (*model.weights, *model.optimizer.variables)]
        return seen

    found, wanted = run(scope_of(), helped=False), run(contextlib.nullcontext(), helped=True)
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


class Failing(keras.utils.PyDataset):
    """Fails at its seventh batch."""

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> Any:
        if index == 6:
            raise OSError("the disk is gone")
        return X[index * BATCH :][:BATCH], Y[index * BATCH :][:BATCH]


def test_data_that_fails_leaves_the_weights_of_the_last_complete_step() -> None:
    with scope_of():
        model = dense(contextlib.nullcontext(), steps_per_execution=STEPS)
        with pytest.raises(OSError, match="the disk is gone"):
            model.fit(Failing(), verbose=0, shuffle=False)
    stock = dense(contextlib.nullcontext())
    stock.fit(X[: 6 * BATCH], Y[: 6 * BATCH], BATCH, verbose=0, shuffle=False)
    for mine, theirs in zip(model.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def paired(y: Any, outputs: Any) -> Any:
    """A loss that an odd number of samples has no shape for."""
    pairs = keras.ops.reshape(outputs[:, 0], (-1, 2))
    return keras.ops.square(pairs[:, 0] - pairs[:, 1] - 1.0)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_last_batch_that_fails_leaves_the_weights_of_the_last_complete_step(steps: int) -> None:
    """The batch has a program of its own, which is traced when the others have run."""
    with scope_of():
        model = dense(contextlib.nullcontext(), steps_per_execution=steps)
        model.compile("sgd", paired, steps_per_execution=steps)
        with pytest.raises(Exception, match="reshape"):
            model.fit(X[: 2 * BATCH + 3], Y[: 2 * BATCH + 3], BATCH, verbose=0, shuffle=False)
    stock = dense(contextlib.nullcontext())
    stock.compile("sgd", paired)
    stock.fit(X[: 2 * BATCH], Y[: 2 * BATCH], BATCH, verbose=0, shuffle=False)
    for mine, theirs in zip(model.get_weights(), stock.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=TIGHT, atol=TIGHT)


@pytest.mark.parametrize("units", [20, 7])
def test_layers_that_are_frozen_by_turns(units: int) -> None:
    """As many weights are trainable as before, and they are others."""
    with scope_of():
        first, last = layers.Dense(units), layers.Dense(20)
        model = keras.Sequential([keras.Input((20,)), first, last])
        model.compile("sgd", "mse")
        first.trainable = False
        wanted, loss = model.predict(X, BATCH, verbose=0), model.evaluate(X, X, BATCH, verbose=0)
        first.trainable, last.trainable = True, False
        np.testing.assert_array_equal(model.predict(X, BATCH, verbose=0), wanted)
        assert model.evaluate(X, X, BATCH, verbose=0) == loss


def accumulate_and_fit(model: keras.Model) -> None:
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=5)
    model.fit(X, Y, BATCH, verbose=0)


def fit_on_devices(model: keras.Model) -> None:
    model.set_pipeline_stage_assignment([0])
    model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
    run_on_devices("devices")
    try:
        model.fit(X, Y, BATCH, verbose=0)
    finally:
        run_on_devices("auto")


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "accumulation": (
        accumulate_and_fit,
        RuntimeError,
        r"\(set to 8\) is not divisible by `gradient_accumulation_steps_per_replica` \(5\)",
    ),
    "execution": (
        lambda model: model.fit(X[:40], Y[:40], BATCH, verbose=0),
        ValueError,
        r"`steps_per_execution` \(8\) must be a divisor of the number of batches \(10\)",
    ),
    "partial batch": (lambda model: model.fit(X[:34], Y[:34], BATCH, verbose=0), ValueError, "has a partial batch"),
    "eager": (lambda model: model.compile("sgd", LOSS, run_eagerly=True), RuntimeError, "cannot run eagerly"),
    "pipeline on devices": (fit_on_devices, PipelineDevicesError, "Keras's JAX backend, whose steps are not cut"),
}


@pytest.mark.usefixtures("graphcore_rules")
@pytest.mark.parametrize("what", sorted(REFUSED))
def test_what_cannot_be_is_refused_before_anything_trains(what: str) -> None:
    run, error, text = REFUSED[what]
    with scope_of(), device_work() as work:
        model = dense(contextlib.nullcontext(), steps_per_execution=8)
        before = model.get_weights()
        with pytest.raises(error, match=text):
            run(model)
    assert work.counts.executions == 0
    for mine, theirs in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.usefixtures("graphcore_rules")
def test_one_batch_does_not_feed_several_replicas_by_graphcores_rules() -> None:
    with scope_of(2):
        model = dense(contextlib.nullcontext())
        with pytest.raises(EmulationError, match="2 replicas takes 2 batches"):
            model.train_on_batch(X[:4], Y[:4])


@pytest.mark.parametrize("backend", ["torch", "numpy"])
def test_other_backends_are_refused(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope.keras.backend, "backend", lambda: backend)
    wanted = f"TensorFlow or JAX backend. Received: the {backend} backend. Set"
    with pytest.raises(NotImplementedError, match=wanted), scope_of():
        raise AssertionError("The scope was entered.")


def test_options_are_saved_and_stock_keras_loads_the_model(tmp_path: Path) -> None:
    with scope_of():
        model = dense(contextlib.nullcontext(), steps_per_execution=8)
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=4)
        model.fit(X, Y, BATCH, verbose=0)
        model.save(tmp_path / "model.keras")
        again = keras.saving.load_model(tmp_path / "model.keras")
        again.fit(X, Y, BATCH, verbose=0)
        wanted = model.predict(X, BATCH, verbose=0)
    assert int(again.optimizer.iterations) == 2 * STEPS // 4
    stock = keras.saving.load_model(tmp_path / "model.keras")
    assert not hasattr(stock, "set_gradient_accumulation_options")
    np.testing.assert_array_equal(stock.predict(X, BATCH, verbose=0), wanted)


def test_models_outside_of_the_scope_stay_stock() -> None:
    with scope_of():
        pass
    with device_work() as work:
        dense(contextlib.nullcontext()).fit(X, Y, BATCH, verbose=0)
    assert work.counts.executions == 0


def test_a_dropped_model_leaves_no_arrays() -> None:
    def train() -> None:
        with scope_of():
            model = dense(contextlib.nullcontext(), steps_per_execution=4)
            model.fit(X, Y, BATCH, verbose=0)
        keras.utils.clear_session()

    train()
    before = len(jax.live_arrays())
    train()
    train()
    assert len(jax.live_arrays()) <= before


def test_runs_that_the_parent_process_compares() -> None:
    """Fixture of the parent process, which compares with Keras on TensorFlow: writes its file and checks nothing."""
    arrays: dict[str, Any] = {f"{run}/{name}": array for run in RUNS for name, array in trained(run).items()}
    np.savez(SAVED.get(), **arrays)
