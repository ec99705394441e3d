"""Models of Keras 2, the package `tf_keras`, train, evaluate and predict on the device with its own numbers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.emulation import EmulationError
from keras_ipu import PipelineStage
from tests.helpers.device_counts import device_work

keras_2: Any = pytest.importorskip("tf_keras", reason="Keras 2 is the package tf_keras, which only its programs need")

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")


class Doubled(keras_2.layers.Layer):
    """A layer with Python control flow over a tensor, which AutoGraph reads."""

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        """Doubles its input, unless that is zero."""
        if tf.reduce_sum(tf.abs(inputs)) > 0:
            return inputs * 2.0
        return inputs


class Momentum(keras_2.optimizers.legacy.Optimizer):
    """An optimizer as programs for TensorFlow 2.6 subclass it."""

    def __init__(self, learning_rate: Any = 0.1, name: str = "Momentum", **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._set_hyper("learning_rate", learning_rate)
        self._set_hyper("decay", self._initial_decay)

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        for var in var_list:
            self.add_slot(var, "velocity")

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None) -> tf.Operation:
        rate = apply_state[(var.device, var.dtype.base_dtype)]["lr_t"]
        velocity = self.get_slot(var, "velocity")
        new = velocity.assign(0.9 * velocity - rate * grad, use_locking=self._use_locking)
        return var.assign_add(new, use_locking=self._use_locking)

    def get_config(self) -> dict[str, Any]:
        """Returns nothing of interest."""
        return super().get_config()


def _halved(pairs: Any) -> Any:
    return [(gradient / 2.0, variable) for gradient, variable in pairs]


def _static_loss_scale() -> Any:
    inner = keras_2.optimizers.legacy.SGD(lr=0.1, decay=0.01, gradient_transformers=[_halved])
    return keras_2.mixed_precision.LossScaleOptimizer(inner, dynamic=False, initial_scale=128.0)


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: keras_2.optimizers.Adam(0.01, clipnorm=1.0),
    "older, subclassed": lambda: Momentum(np.float32(0.1), decay=0.05),
    "older, static loss scale": _static_loss_scale,
}


@dataclasses.dataclass
class Results:
    """What a run gave: logs of each epoch, of an evaluation; predictions; weights; optimizer's updates."""

    history: dict[str, list[float]]
    evaluation: list[float]
    predictions: np.ndarray
    weights: list[np.ndarray]
    updates: int


def _model(optimizer: Any, steps: int = 1, normalized: bool = True) -> Any:
    keras_2.utils.set_random_seed(1)
    layers = [keras_2.layers.Dense(6, activation="tanh"), Doubled(), keras_2.layers.Dense(2)]
    layers[1:1] = [keras_2.layers.BatchNormalization()] if normalized else []
    model = keras_2.Sequential(layers)
    loss = keras_2.losses.SparseCategoricalCrossentropy(from_logits=True)
    top = keras_2.metrics.MeanMetricWrapper(keras_2.metrics.sparse_categorical_accuracy, name="top")
    model.compile(optimizer, loss, metrics=["accuracy", top], steps_per_execution=steps)
    return model


def _run(model: Any, samples: int = 32, batch: int = 4, epochs: int = 2, **options: Any) -> Results:
    x, y = X[:samples], Y[:samples]
    history = model.fit(x, y, batch_size=batch, epochs=epochs, shuffle=False, verbose=0, **options).history
    evaluation = model.evaluate(x, y, batch_size=batch, verbose=0)
    predictions = model.predict(x, batch_size=batch, verbose=0)
    return Results(history, evaluation, predictions, model.get_weights(), int(model.optimizer.iterations))


def _assert_equal(ran: Results, stock: Results) -> None:
    assert ran.history.keys() == stock.history.keys()
    for name, values in stock.history.items():
        np.testing.assert_allclose(ran.history[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(ran.evaluation, stock.evaluation, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ran.predictions, stock.predictions, rtol=1e-4, atol=1e-5)
    for one, other in zip(ran.weights, stock.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert ran.updates == stock.updates


@contextlib.contextmanager
def _scope(ipus: int = 1, graphcore_rules: bool = False) -> Iterator[None]:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.graphcore_rules = graphcore_rules
    config.configure_ipu_system()
    try:
        with ipu.ipu_strategy.IPUStrategy().scope():
            yield
    finally:
        ipu.config.reset_ipu_configuration()


@pytest.mark.filterwarnings("ignore:The `lr` argument is deprecated")  # Keras 2's own, of the name that is tested
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_of_both_generations_give_stock_numbers(name: str) -> None:
    def trained(optimizer: Any) -> list[np.ndarray]:
        model = _model(optimizer, steps=4, normalized=False)
        losses = model.fit(X, Y, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
        return [np.float32(losses), *model.get_weights()]

    stock = trained(OPTIMIZERS[name]())
    with _scope(), device_work() as work:
        ran = trained(OPTIMIZERS[name]())
    for one, other in zip(ran, stock, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert work.counts.executions == 4


def test_fit_evaluate_and_predict_give_stock_numbers() -> None:
    given: dict[str, Any] = {"samples": 30, "validation_data": (X[:8], Y[:8]), "validation_batch_size": 4}
    stock = _run(_model("sgd", steps=3), **given)
    with _scope(), device_work() as work:
        ran = _run(_model("sgd", steps=3), **given)
    _assert_equal(ran, stock)
    # 8 batches are executions of 3, 3 and 2, the last of which is partial: a program of its own.
    assert work.counts.executions == 2 * (4 + 1) + 2 * 4


@pytest.mark.parametrize(("ipus", "count"), [(1, 2), (2, 2)])
def test_a_split_step_gives_the_numbers_of_the_whole_batch(ipus: int, count: int) -> None:
    # The gradients of micro-batches are averaged, those of replicas summed.
    stock = _run(_model(keras_2.optimizers.SGD(0.1), normalized=False), batch=4 * ipus * count)
    with _scope(ipus):
        model = _model(keras_2.optimizers.SGD(0.1 / ipus), steps=4, normalized=False)
        model.set_gradient_accumulation_options(count, "mean")
        ran = _run(model)
    _assert_equal(ran, stock)


def test_batches_of_unknown_number_and_single_ones_and_callbacks_that_see_their_weights() -> None:
    def trained(model: Any) -> list[Any]:
        kernels: list[np.ndarray] = []
        look = keras_2.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: kernels.append(model.get_weights()[0])
        )
        data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8).filter(lambda x, y: True)
        history = model.fit(data, epochs=2, verbose=0, callbacks=[look]).history
        one = model.train_on_batch(X[:8], Y[:8])
        assert len(kernels) == 8 and not np.array_equal(kernels[0], kernels[1])
        seen = np.concatenate([history["loss"], one, [model.predict_on_batch(X[:8]).sum()]])
        return [seen, np.stack(kernels)]

    stock = trained(_model("sgd"))
    with _scope():
        ran = trained(_model("sgd"))
    for one, other in zip(ran, stock, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_model_may_run_eagerly_and_one_outside_of_a_scope_stays_on_the_host() -> None:
    def trained(eagerly: bool) -> float:
        model = _model("sgd")
        model.run_eagerly = eagerly
        return float(model.fit(X[:4], Y[:4], batch_size=4, verbose=0).history["loss"][0])

    with _scope(), device_work() as work:
        ran = trained(True)
    assert work.counts.executions > 2
    with device_work() as host:
        assert ran == pytest.approx(trained(False), rel=1e-4)
    assert host.counts.executions == 0


def test_what_keras_2_does_not_do_here_is_refused_by_name() -> None:
    class Own(keras_2.Sequential):
        def make_train_function(self, force: bool = False) -> Any:
            return super().make_train_function(force)

    with _scope(2):
        model = _model("sgd")
        with pytest.raises(EmulationError, match="called between executions.*asynchronous=True"):
            model.set_asynchronous_callbacks(True)
        with pytest.raises(EmulationError, match="2 replicas takes 2 batches a step"):
            model.train_on_batch(X[:8], Y[:8])
        own = Own([keras_2.layers.Dense(2)])
        own.compile("sgd", "mse")
        with pytest.raises(RuntimeError, match="`make_train_function` for the model"):
            own.fit(X, X[:, :2], verbose=0)
    with pytest.raises(AttributeError, match="only models of an `IPUStrategy`'s scope have it"):
        _model("sgd").set_gradient_accumulation_options(2)


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_rows_of_an_embedding_that_a_batch_names_twice_are_added_up(
    momentum: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    def trained() -> list[np.ndarray]:
        keras_2.utils.set_random_seed(1)
        model = keras_2.Sequential(
            [keras_2.layers.Embedding(5, 3, input_length=3), keras_2.layers.Flatten(), keras_2.layers.Dense(1)]
        )
        optimizers = keras_2.optimizers
        model.compile(optimizers.Adam(0.1) if momentum is None else optimizers.legacy.SGD(0.1, momentum), "mse")
        names = np.arange(24).reshape(8, 3) % 4  # two batches name all rows but one
        losses = model.fit(names, np.ones((8, 1)), batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
        return [np.float32(losses), *model.get_weights()]

    stock = trained()
    with _scope(), caplog.at_level("WARNING", "ipu_tf"):
        ran = trained()
    for one, other in zip(ran, stock, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert ("Keras 2's SGD updates only the rows" in caplog.text) is (momentum is not None)


def _functional() -> Any:
    keras_2.utils.set_random_seed(1)
    x = keras_2.Input((4,))
    first = keras_2.layers.Dense(6, activation="tanh", name="first")(x)
    joined = keras_2.layers.Concatenate(name="joined")([first, x])
    model = keras_2.Model(x, keras_2.layers.Dense(2, name="last")(joined))
    loss = keras_2.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras_2.optimizers.SGD(0.1), loss, metrics=["accuracy"], steps_per_execution=8)
    return model


def test_a_model_in_pipeline_stages_gives_the_numbers_of_accumulation() -> None:
    stock = _functional()
    stock.steps_per_execution = 1
    expected = _run(stock, batch=32)
    with _scope(2):
        model = _functional()
        stages = model.get_pipeline_stage_assignment()
        assert [each.layer.name for each in stages] == ["first", "joined", "last"]
        with pytest.raises(ValueError, match="first has not been assigned a pipeline stage"):
            model.set_pipeline_stage_assignment(stages)
        for assignment, stage in zip(stages, (1, 0, 1), strict=True):
            assignment.pipeline_stage = stage
        with pytest.raises(ValueError, match="Layer joined in pipeline stage 0 has a dependency"):
            model.set_pipeline_stage_assignment(stages)
        stages[0].pipeline_stage = 0
        model.set_pipeline_stage_assignment(stages)
        lines: list[str] = []
        model.print_pipeline_stage_assignment_summary(print_fn=lines.append)
        assert any("joined (Concatenate) (0)" in line and "first" in line for line in lines)
        model.set_pipelining_options(8, gradient_accumulation_reduction_method="mean")
        _assert_equal(_run(model), expected)


def test_stages_of_a_shared_layer_are_those_of_its_calls() -> None:
    with _scope(2):
        x = keras_2.Input((4,))
        shared = keras_2.layers.Dense(4, name="shared")
        first = shared(x)
        model = keras_2.Model(x, keras_2.layers.Add()([shared(first), keras_2.layers.Dense(4, name="beside")(first)]))
        stages = model.get_pipeline_stage_assignment()
        for each in stages:
            early = each.layer.name == "beside" or (each.layer is shared and each.node_index == 0)
            each.pipeline_stage = 0 if early else 1
        model.set_pipeline_stage_assignment(stages)
        for each in stages:
            each.pipeline_stage = int(each.layer is shared and each.node_index == 0)
        with pytest.raises(ValueError, match="has a dependency from a pipeline stage which has not yet been executed"):
            model.set_pipeline_stage_assignment(stages)


class CallsTwice(keras_2.Model):
    """Updates its two layers by two calls of its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = keras_2.layers.Dense(3), keras_2.layers.Dense(1)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """The last layer's outputs."""
        return self.last(self.first(x))

    def train_step(self, data: Any) -> dict[str, tf.Tensor]:
        """A step whose loss is the mean square of the outputs."""
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(data[0]) - 1.0) ** 2)
        gradients, variables = tape.gradient(loss, self.trainable_variables), self.trainable_variables
        for part in (slice(2), slice(2, 4)):
            self.optimizer.apply_gradients(zip(gradients[part], variables[part], strict=True))
        return {"loss": loss}


@pytest.mark.parametrize("samples", [8, 14])
def test_several_calls_of_an_optimizer_and_batches_left_over(samples: int) -> None:
    def trained(batch: int, accumulation: int) -> list[np.ndarray]:
        keras_2.utils.set_random_seed(3)
        model = CallsTwice()
        model.build((None, 4))
        model.compile("sgd", steps_per_execution=accumulation)
        model.optimizer.build(model.trainable_variables)
        if accumulation > 1:
            model.set_gradient_accumulation_options(accumulation, gradient_accumulation_reduction_method="mean")
        model.fit(X[:samples], Y[:samples], batch_size=batch, epochs=2, shuffle=False, verbose=0)
        return list(model.get_weights())

    stock = trained(8, 1)
    with _scope(1), device_work() as work:
        found = trained(4, 2)
    assert work.counts.executions > 0
    for mine, theirs in zip(found, stock, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_scopes_of_pipeline_stages_assign_layers_and_calls() -> None:
    stock = _functional()
    stock.steps_per_execution = 1
    expected = _run(stock, batch=32)
    with _scope(1):
        with PipelineStage(0):
            model = _functional()
        assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [0, 0, 0]
        with PipelineStage(1):
            last = keras_2.layers.Dense(2, name="later")
        x = keras_2.Input((4,))
        outputs = last(model.layers[1](x))
        later = keras_2.Model(x, outputs)
        assert [each.pipeline_stage for each in later.get_pipeline_stage_assignment()] == [0, 1]
        with PipelineStage(1):
            late = model.layers[1](x)
        with pytest.raises(RuntimeError, match=r"the preceeding stages \[0\] had no assignments"):
            keras_2.Model(x, last(late)).get_pipeline_stage_assignment()
        with pytest.raises(ValueError, match="However, outside has not been assigned to one"):
            keras_2.Sequential([last, keras_2.layers.Dense(2, name="outside")]).get_pipeline_stage_assignment()
        with pytest.raises(ValueError, match="is pipelined, however"):
            model.fit(X, Y, batch_size=4, verbose=0)
        model.set_pipelining_options(8, gradient_accumulation_reduction_method="mean")
        _assert_equal(_run(model), expected)
        model.reset_pipeline_stage_assignment()
        assert [each.pipeline_stage for each in model.get_pipeline_stage_assignment()] == [None, None, None]


def test_scopes_of_pipeline_stages_in_a_subclassed_model_are_refused() -> None:
    class Own(keras_2.Model):
        def __init__(self, within: bool) -> None:
            super().__init__()
            self.within = within
            with contextlib.nullcontext() if within else PipelineStage(0):
                self.dense = keras_2.layers.Dense(2)

        def call(self, inputs: tf.Tensor) -> tf.Tensor:
            with PipelineStage(0) if self.within else contextlib.nullcontext():
                return self.dense(inputs)

    for within in (False, True):
        with _scope(1):
            model = Own(within)
            model.compile("sgd", keras_2.losses.SparseCategoricalCrossentropy(from_logits=True))
            with pytest.raises(EmulationError, match="scopes in own.*, which is subclassed"):
                model.fit(X, Y, batch_size=4, verbose=0)


def test_stages_of_a_sequential_model_and_those_that_cannot_be() -> None:
    class Own(keras_2.Model):
        pass

    with _scope(2):
        model = _model("sgd", steps=8, normalized=False)
        stages = model.get_pipeline_stage_assignment()
        for assignment, stage in zip(stages, (0, 2, 2), strict=True):
            assignment.pipeline_stage = stage
        with pytest.raises(RuntimeError, match=r"the preceeding stages \[1\] had no assignments"):
            model.set_pipeline_stage_assignment(stages)
        for assignment, stage in zip(stages, (0, 1, 0), strict=True):
            assignment.pipeline_stage = stage
        with pytest.raises(ValueError, match="pipeline stage 0 has a dependency"):
            model.set_pipeline_stage_assignment(stages)
        stages[-1].pipeline_stage = 1
        model.set_pipeline_stage_assignment(stages)
        with pytest.raises(ValueError, match="is pipelined, however"):
            model.fit(X, Y, batch_size=4, verbose=0)
        with pytest.raises(RuntimeError, match="which is subclassed. Make a functional model"):
            Own().get_pipeline_stage_assignment()
        outer = keras_2.Sequential([keras_2.Sequential([keras_2.layers.Dense(2)])])
        with pytest.raises(EmulationError, match="Call its layers in the outer model"):
            outer.get_pipeline_stage_assignment()


def test_replicas_may_keep_their_own_metrics() -> None:
    with _scope(2):
        model = _model("sgd", normalized=False)
        model.set_replication_options("LIST")
        logs: list[Any] = []
        look = keras_2.callbacks.LambdaCallback(on_train_batch_end=lambda batch, given: logs.append(given["loss"]))
        model.fit(X[:8], Y[:8], batch_size=4, shuffle=False, verbose=0, callbacks=[look])
    assert len(logs) == 1 and len(logs[0]) == 2 and logs[0][0] != logs[0][1]


_PROGRAM = """
import contextlib, json
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras.layers import Dense
from tensorflow.python import ipu

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
x = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")

def train(scope):
    keras.utils.set_random_seed(1)
    with scope:
        inputs = keras.Input((4,))
        hidden = Dense(6, activation="tanh")(inputs)
        outputs = Dense(1)(tf.concat([hidden, tf.nn.sigmoid(hidden)], axis=-1))
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.legacy.SGD(0.1, decay=0.01), "mse", steps_per_execution=4)
        saved = keras.callbacks.ModelCheckpoint("weights", save_weights_only=True)
        history = model.fit(x, x[:, :1], batch_size=8, epochs=2, shuffle=False, verbose=0, callbacks=[saved])
        model.load_weights("weights").expect_partial()
    return history.history["loss"]

print(json.dumps([train(contextlib.nullcontext()), train(ipu.ipu_strategy.IPUStrategy().scope())]))
"""


def test_a_program_of_keras_2_runs_unchanged_under_the_launcher(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_PROGRAM)
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(Path(ipu.__file__).parents[1])}
    command = [sys.executable, "-m", "ipu_tf", "--stats", "train.py"]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    *_, numbers, stats = ran.stdout.splitlines()
    stock, device = json.loads(numbers)
    np.testing.assert_allclose(device, stock, rtol=1e-4)
    assert "2 executions, 8 steps" in stats
