"""Asynchronous callbacks: a call for every step and every replica, in a thread of its own while the device runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus
from tests.keras_ipu.training.test_keras_split import BATCH, Scaled, adamw, built, stages_for
from tests.keras_ipu.training.test_keras_split import data as all_data

BATCHES = 32
STEPS = 8
"""Steps of an execution."""


def data() -> tuple[np.ndarray, np.ndarray]:
    """`BATCHES` batches of samples and labels."""
    x, y = all_data()
    return x[: BATCH * BATCHES], y[: BATCH * BATCHES]


class Calls(keras.callbacks.Callback):
    """Keeps what it is called with: (name, index, logs), and the names of the threads."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int, dict[str, Any]]] = []
        self.threads: set[str] = set()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begun.append(("train", batch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end("train", batch, logs)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begun.append(("test", batch))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end("test", batch, logs)

    def on_predict_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begun.append(("predict", batch))

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        self._end("predict", batch, logs)

    def _end(self, name: str, batch: int, logs: dict[str, Any]) -> None:
        self.threads.add(threading.current_thread().name)
        self.ended.append((name, batch, logs))

    def logs(self, name: str, key: str) -> np.ndarray:
        """All values of one kind of call, in the order of the calls."""
        return np.array([logs[key] for kind, _, logs in self.ended if kind == name], dtype=np.float32)


def compiled(asynchronous: bool, steps: int = STEPS, stages: int = 1, count: int = 1, **options: Any) -> keras.Model:
    """A model made in the scope that is open."""
    model = built("sequential")
    if stages > 1:
        stages_for(model, stages)
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=count, **options)
    elif count > 1:
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=count)
    model.set_asynchronous_callbacks(asynchronous)
    model.compile(adamw(), Scaled(1), metrics=["accuracy"], steps_per_execution=steps)
    return model


def all_calls(model: keras.Model) -> Calls:
    """The calls of two epochs of training, one evaluation and one prediction."""
    x, y = data()
    calls = Calls()
    model.fit(x, y, BATCH, 2, verbose=0, shuffle=False, callbacks=[calls])
    model.evaluate(x, y, BATCH, verbose=0, callbacks=[calls])
    model.predict(x, BATCH, verbose=0, callbacks=[calls])
    return calls


@pytest.mark.parametrize(("replicas", "stages", "count"), [(1, 1, 1), (2, 1, 4), (2, 2, 4)])
def test_a_call_for_every_step_and_replica(replicas: int, stages: int, count: int) -> None:
    with ipus(replicas * stages) as strategy, strategy.scope(), device_work() as work:
        calls = all_calls(compiled(True, stages=stages, count=count))
    indices = [index for _, index, _ in calls.ended]
    assert indices == [*range(BATCHES)] * 4
    assert [name for name, *_ in calls.ended] == ["train"] * 2 * BATCHES + ["test"] * BATCHES + ["predict"] * BATCHES
    assert calls.begun == [(name, index) for name, index, _ in calls.ended]
    assert calls.threads == {"ipu-step-outputs"}
    assert work.counts.executions == 4 * BATCHES // replicas // STEPS


@pytest.mark.parametrize(("replicas", "count"), [(1, 1), (1, 4), (2, 1), (2, 4)])
def test_a_call_for_every_batch_that_fills_no_step(replicas: int, count: int) -> None:
    x, y = (array[: 10 * BATCH + 3] for array in data())
    stock, wanted, calls, found = built("sequential"), Calls(), Calls(), list[Any]()
    stock.compile(loss=Scaled(1))
    with ipus(replicas) as strategy, strategy.scope():
        model = compiled(True, count=count)
        model.fit(x, y, BATCH, verbose=0, shuffle=False, callbacks=[calls])
        stock.set_weights(model.get_weights())
        model.evaluate(x, y, BATCH, verbose=0, callbacks=[calls])
        found.append(model.predict(x, BATCH, verbose=0, callbacks=[calls]))
    stock.evaluate(x, y, BATCH, verbose=0, callbacks=[wanted])
    stock.predict(x, BATCH, verbose=0, callbacks=[wanted])
    assert [call[:2] for call in calls.ended] == [(name, n) for name in ("train", "test", "predict") for n in range(11)]
    assert calls.begun == [call[:2] for call in calls.ended]
    np.testing.assert_allclose(calls.logs("test", "loss")[-1], wanted.logs("test", "loss")[-1], rtol=1e-5)
    outputs = [[logs["outputs"] for name, _, logs in each.ended if name == "predict"] for each in (calls, wanted)]
    for mine, theirs in zip(*outputs, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.concatenate(outputs[0]), found[0])


def test_an_exception_for_a_batch_that_fills_no_step_leaves_the_weights() -> None:
    x, y = (array[: 3 * BATCH] for array in data())

    def fail(batch: int, logs: Any) -> None:
        raise ArithmeticError(f"at {batch}")

    with ipus(1) as strategy, strategy.scope():
        model = compiled(True, count=4)
        failing = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
        with pytest.raises(ArithmeticError, match="at 0"):
            model.fit(x, y, BATCH, verbose=0, callbacks=[failing])
        assert int(model.optimizer.iterations) == 1
        model.fit(x, y, BATCH, verbose=0)
        assert int(model.optimizer.iterations) == 2


def test_logs_and_weights_are_those_of_executions_of_one_step() -> None:
    found = []
    for asynchronous, steps in ((False, 1), (True, STEPS)):
        with ipus(1) as strategy, strategy.scope():
            model = compiled(asynchronous, steps)
            found.append((all_calls(model), model.get_weights(), model.history.history))
    (wanted, weights, history), (got, others, shown) = found
    for name in ("train", "test"):
        for key in ("loss", "accuracy"):
            np.testing.assert_array_equal(got.logs(name, key), wanted.logs(name, key))
    np.testing.assert_array_equal(got.logs("predict", "outputs"), wanted.logs("predict", "outputs"))
    for mine, theirs in zip(others, weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert shown == history


def test_each_replica_s_call_gets_its_own_logs() -> None:
    x, y = data()
    found = []
    for asynchronous, steps, method in ((False, 1, "LIST"), (True, STEPS, "NONE"), (True, STEPS, "SUM")):
        with ipus(4) as strategy, strategy.scope():
            model = compiled(asynchronous, steps)
            model.set_replication_options(replicated_metric_reduction_method=method)
            calls = Calls()
            model.evaluate(x, y, BATCH, verbose=0, callbacks=[calls])
            found.append(calls.logs("test", "loss"))
    each, own, summed = found
    np.testing.assert_array_equal(own, each.reshape(-1))
    np.testing.assert_allclose(summed, np.repeat(each.sum(1), 4), rtol=1e-6)


def test_callbacks_run_while_the_device_does() -> None:
    """The data of a later step waits for the call of the first; were it made after the execution, it never came."""
    called = threading.Event()

    def samples() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for step in range(STEPS):
            if step == 4 and not called.wait(60):
                raise TimeoutError("no callback was called while the execution was under way")
            yield np.ones((BATCH, 20), np.float32), np.zeros(BATCH, np.int32)

    signature = (tf.TensorSpec((BATCH, 20)), tf.TensorSpec((BATCH,), tf.int32))
    told = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: called.set())
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        dataset = tf.data.Dataset.from_generator(samples, output_signature=signature)
        compiled(True).fit(dataset, steps_per_epoch=STEPS, verbose=0, shuffle=False, callbacks=[told])
    assert (work.counts.executions, work.counts.steps) == (1, STEPS)


def test_an_exception_of_a_callback_ends_the_run() -> None:
    x, y = data()

    def fail(batch: int, logs: Any) -> None:
        raise ArithmeticError(f"at {batch}")

    with ipus(1) as strategy, strategy.scope():
        model = compiled(True, steps=BATCHES)
        failing = keras.callbacks.LambdaCallback(on_train_batch_end=fail)
        with pytest.raises(ArithmeticError, match="at 0"):
            model.fit(x, y, BATCH, verbose=0, callbacks=[failing])
        assert "ipu-step-outputs" not in [thread.name for thread in threading.enumerate()]
        done = int(model.optimizer.iterations)
        assert 1 <= done <= BATCHES
        model.fit(x, y, BATCH, verbose=0)
        assert int(model.optimizer.iterations) == done + BATCHES


def test_an_exception_of_the_program_ends_the_thread() -> None:
    def samples() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for _ in range(3):
            yield np.ones((BATCH, 20), np.float32), np.zeros(BATCH, np.int32)
        raise ArithmeticError("no more")

    signature = (tf.TensorSpec((BATCH, 20)), tf.TensorSpec((BATCH,), tf.int32))
    calls = Calls()
    with ipus(1) as strategy, strategy.scope():
        dataset = tf.data.Dataset.from_generator(samples, output_signature=signature)
        model = compiled(True)
        with pytest.raises(tf.errors.OpError, match="no more"):
            model.fit(dataset, steps_per_epoch=STEPS, verbose=0, shuffle=False, callbacks=[calls])
    assert [index for _, index, _ in calls.ended] == [0, 1, 2]
    assert "ipu-step-outputs" not in [thread.name for thread in threading.enumerate()]


def test_accumulated_outfeeds_have_no_logs_of_steps() -> None:
    with ipus(2) as strategy, strategy.scope():
        calls = all_calls(compiled(True, stages=2, count=4, accumulate_outfeed=True))
    names = [name for name, *_ in calls.ended]
    executions = BATCHES // STEPS
    assert [names.count(name) for name in ("train", "test", "predict")] == [2 * executions, executions, BATCHES]


@pytest.mark.parametrize("delay", [0.0, 0.02])
def test_callbacks_see_variables_as_they_were_before_the_execution(delay: float) -> None:
    """Whether they are called while it runs, or come so late that it is over."""
    x, y = data()
    seen: list[int] = []

    def look(batch: int, logs: Any) -> None:
        time.sleep(delay)
        seen.append(int(model.optimizer.iterations))

    with ipus(1) as strategy, strategy.scope():
        model = compiled(True)
        model.fit(x, y, BATCH, verbose=0, callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=look)])
    assert seen == [STEPS * (step // STEPS) for step in range(BATCHES)]


def test_a_variable_written_in_a_callback_counts_from_the_next_execution_on() -> None:
    x, y = data()
    with ipus(1) as strategy, strategy.scope():
        model = compiled(True)
        zeros = [np.zeros_like(weight) for weight in model.layers[0].get_weights()]
        clear = keras.callbacks.LambdaCallback(
            on_test_batch_end=lambda batch, logs: model.layers[0].set_weights(zeros) if batch == 2 else None
        )
        calls = Calls()
        model.evaluate(x, y, BATCH, verbose=0, callbacks=[clear, calls])
        late = model.predict(x[:BATCH], BATCH, verbose=0)
    np.testing.assert_allclose(late, np.repeat(late[:1], BATCH, 0), rtol=1e-6)
    assert len(calls.ended) == BATCHES


def test_stop_training_ends_after_the_execution() -> None:
    x, y = data()
    with ipus(1) as strategy, strategy.scope(), device_work() as work:
        model = compiled(True)
        stop = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: setattr(model, "stop_training", True)
        )
        model.fit(x, y, BATCH, 3, verbose=0, callbacks=[stop])
    assert work.counts.steps == STEPS


def test_other_models_and_single_batches_within_a_callback_are_called_as_usual() -> None:
    x, y = data()
    inner, outer = Calls(), Calls()

    def others(epoch: int, logs: Any) -> None:
        stock.fit(x, y, BATCH, verbose=0, callbacks=[inner])
        model.train_on_batch(x[:BATCH], y[:BATCH])

    stock = built("sequential")
    stock.compile("sgd", Scaled(1))
    with ipus(1) as strategy, strategy.scope():
        model = compiled(True)
        model.fit(
            x, y, BATCH, verbose=0, callbacks=[outer, keras.callbacks.LambdaCallback(on_epoch_end=others)],
            validation_data=(x, y),
        )  # fmt: skip
    assert [index for _, index, _ in inner.ended] == [*range(BATCHES)]
    assert inner.threads == {"MainThread"}
    names = [name for name, *_ in outer.ended]
    assert [names.count(name) for name in ("train", "test")] == [BATCHES, BATCHES]


def test_the_progress_bar_is_called_for_every_step(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = data()
    with ipus(1) as strategy, strategy.scope():
        compiled(True).fit(x, y, BATCH, verbose=1)
    shown = capsys.readouterr().out
    assert f"{BATCHES}/{BATCHES}" in shown


def test_one_execution_of_all_steps_gives_the_same_numbers() -> None:
    weights = []
    for steps in (STEPS, BATCHES):
        with ipus(1) as strategy, strategy.scope():
            model = compiled(True, steps=steps)
            all_calls(model)
            weights.append(model.get_weights())
    for mine, theirs in zip(*weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
