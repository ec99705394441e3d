"""Steps run ahead of Keras's loop when no batch callback is called: results are bit-identical."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from keras import layers

import ipu_tf as ipu
from ipu_tf.device.run.loop_run import LoopRun
from keras_ipu.training.common import run_ahead
from keras_ipu.training.common.run_ahead import StepsAhead
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import configure, integers, ipu_scope, numbers
from tests.helpers.sigint import press_ctrl_c, sigint_interrupts  # noqa: F401 - a fixture

# Keras makes arrays of TensorFlow variables in a way that NumPy 2 no longer likes.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

BATCH, BATCHES, EPOCHS = 4, 40, 3
X, Y = numbers(BATCH * BATCHES, 6), integers(3, BATCH * BATCHES)
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
Data = dict[str, Any]
Seen = list[tuple[int, dict[str, float]]]


class Watcher(keras.callbacks.Callback):
    """Is called for batches, and so has every step be an execution of its own."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Looks at nothing."""

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Looks at nothing."""


def model(replicas: int = 1) -> keras.Model:
    keras.utils.set_random_seed(1)
    configure(replicas)
    with ipu_scope():
        inner = [layers.Dense(8, "tanh"), layers.Dropout(0.3, seed=4), layers.Dense(3)]
        made = keras.Sequential([keras.Input((6,)), *inner])
        made.compile(keras.optimizers.Adam(0.01), LOSS, metrics=["accuracy"])
    return made


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH, drop_remainder=True)


DATA: dict[str, tuple[int, Callable[[], Data]]] = {
    "arrays": (1, lambda: {"x": X, "y": Y, "batch_size": BATCH, "validation_data": (X[:40], Y[:40])}),
    "weights": (1, lambda: {"x": X, "y": Y, "batch_size": BATCH, "sample_weight": np.abs(X[:, 0]), "shuffle": False}),
    "part of an epoch": (1, lambda: {"x": X, "y": Y, "batch_size": BATCH, "steps_per_epoch": 9}),
    "a dataset": (1, lambda: {"x": dataset(), "shuffle": False}),
    "without an end": (1, lambda: {"x": dataset().repeat(), "steps_per_epoch": 13, "shuffle": False}),
    "replicas": (2, lambda: {"x": X, "y": Y, "batch_size": BATCH, "validation_data": (X[:40], Y[:40])}),
}


@pytest.fixture(autouse=True, scope="module")
def at_any_speed() -> Iterator[None]:
    """A run ahead may take as long as it does: how far it goes does not depend on how busy the machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_ahead, "PAUSE", 1e6)
        yield


@contextlib.contextmanager
def progress(patch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """Records the updates of progress bars."""
    told: Seen = []

    def update(bar: Any, current: int, values: Any = None, finalize: bool | None = None) -> None:
        told.append((current, {name: float(value) for name, value in values or ()}))

    with patch.context() as inner:
        inner.setattr(keras.utils.Progbar, "update", update)
        yield told


def everything(
    replicas: int, data: Data, patch: pytest.MonkeyPatch, callbacks: list[Any]
) -> tuple[Any, Any, list[np.ndarray], int, int]:
    """Progress, history and variables of a `fit`; and the device's executions and steps."""
    made = model(replicas)
    with progress(patch) as told, device_work() as work:
        history = made.fit(**data, epochs=EPOCHS, verbose=1, callbacks=callbacks).history
    values = [np.asarray(variable) for variable in (*made.variables, *made.optimizer.variables)]
    return told, history, values, work.counts.executions, work.counts.steps


SLOW = frozenset(["part of an epoch", "without an end"])


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in DATA])
def test_what_runs_ahead_shows_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas, data = DATA[name]
    told, history, values, executions, steps = everything(replicas, data(), monkeypatch, [])
    wanted = everything(replicas, data(), monkeypatch, [Watcher()])
    assert len(told) > 20
    assert (told, history) == wanted[:2]
    for found, watched in zip(values, wanted[2], strict=True):
        np.testing.assert_array_equal(found, watched)
    # An execution is one step on every replica.
    assert wanted[3:] == (steps, steps)
    assert executions < steps / 2


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_a_progress_bar_shows_batches_in_order(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, data = model(), {"x": X} if method == "predict" else {"x": X, "y": Y}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads of a pool overtake each other
    try:
        for _ in range(5):
            with progress(monkeypatch) as told:
                getattr(made, method)(**data, batch_size=BATCH, verbose=1)
            assert [step for step, _ in told] == [*range(1, BATCHES + 1), BATCHES]
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.usefixtures("sigint_interrupts")
@pytest.mark.parametrize("mode", ["evaluate", "fit"])
def test_an_interrupted_run_keeps_the_steps_that_ran(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, runs, stock = model(), itertools.count(), LoopRun.run

    def run(*arguments: Any, **named: Any) -> Any:
        if next(runs) == 4:
            press_ctrl_c()
        return stock(*arguments, **named)

    monkeypatch.setattr(LoopRun, "run", run)
    with device_work() as work, pytest.raises(KeyboardInterrupt):
        getattr(made, mode)(X, Y, BATCH, verbose=0)
    assert 4 <= work.counts.steps < BATCHES
    assert int(made.optimizer.iterations) == (work.counts.steps if mode == "fit" else 0)


def executions_of(callbacks: list[Any], x: Any = X, y: Any = Y, made: Any = None) -> int:
    made = made or model()
    batch = None if y is None else BATCH
    with device_work() as work:
        made.fit(x, y, batch, verbose=0, callbacks=callbacks, shuffle=y is not None)
    assert work.counts.steps == BATCHES
    return work.counts.executions


def test_who_watches(tmp_path: Path) -> None:
    path = str(tmp_path / "saved.keras")
    made, seen = model(), list[Any]()
    quiet: list[Callable[[], Any]] = [
        lambda: keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs)),
        lambda: keras.callbacks.ModelCheckpoint(path),
        lambda: keras.callbacks.BackupAndRestore(str(tmp_path / "backup")),
        lambda: keras.callbacks.EarlyStopping("loss"),
        lambda: keras.callbacks.CSVLogger(str(tmp_path / "log.csv")),
        lambda: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate),
    ]
    watching: list[Callable[[], Any]] = [
        Watcher,
        lambda: keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: seen.append(batch)),
        lambda: keras.callbacks.ModelCheckpoint(path, save_freq=BATCHES),
        keras.callbacks.TerminateOnNaN,
    ]
    assert all(executions_of([make()], made=made) < BATCHES / 2 for make in quiet)
    assert all(executions_of([make()], made=made) == BATCHES for make in watching)
    assert executions_of([keras.callbacks.EarlyStopping("loss"), Watcher()], made=made) == BATCHES


class StopsAtOnce(keras.callbacks.Callback):
    """Ends each run before its first step, from the second epoch on where it trains."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.stop_training = epoch == 1

    def on_test_begin(self, logs: Any = None) -> None:
        self.model.stop_evaluating = True

    def on_predict_begin(self, logs: Any = None) -> None:
        self.model.stop_predicting = True


def stopped_at_once(made: keras.Model) -> list[Any]:
    made.compile(keras.optimizers.SGD(0.1), "mse")
    fitted = made.fit(X, X, BATCH, epochs=3, verbose=0, shuffle=False, callbacks=[StopsAtOnce()]).history["loss"]
    made.evaluate(X, X, BATCH, verbose=0)  # from now on many steps may run ahead
    made.predict(X, BATCH, verbose=0)
    evaluated = made.evaluate(X, X, BATCH, verbose=0, callbacks=[StopsAtOnce()])
    predicted = made.predict(X, BATCH, verbose=0, callbacks=[StopsAtOnce()])
    return [int(made.optimizer.iterations), fitted, evaluated, predicted]


def test_a_run_that_is_to_stop_takes_one_step_as_in_stock_keras() -> None:
    keras.utils.set_random_seed(1)
    wanted = stopped_at_once(keras.Sequential([keras.Input((6,)), layers.Dense(6)]))
    keras.utils.set_random_seed(1)
    configure()
    with ipu_scope():
        made = keras.Sequential([keras.Input((6,)), layers.Dense(6)])
    found = stopped_at_once(made)
    assert found[0] == wanted[0] == BATCHES + 1
    for mine, stock in zip(found[1:], wanted[1:], strict=True):
        np.testing.assert_allclose(mine, stock, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # which a generator does not tell before
def test_batches_of_the_users_own_code_are_not_read_ahead() -> None:
    """Neither a generator's nor a `PyDataset`'s: they may look at the model."""

    class Batches(keras.utils.PyDataset):
        def __len__(self) -> int:
            return BATCHES

        def __getitem__(self, index: int) -> Any:
            rows = slice(index * BATCH, (index + 1) * BATCH)
            return X[rows], Y[rows]

    batches = Batches()
    assert executions_of([], batches, None) == BATCHES
    # One more finds that the generator has ended.
    assert executions_of([], (batches[place] for place in range(BATCHES)), None) == BATCHES + 1


@pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="Keras on JAX keeps a model's variables from its callbacks"
)
def test_steps_that_call_the_host_do_not_run_ahead() -> None:
    made = model()

    class Printing(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            with tf.control_dependencies([ipu.internal_ops.print_tensor(x, "x")]):
                return tf.identity(x)

    with ipu_scope():
        printing = keras.Sequential([keras.Input((6,)), Printing(), layers.Dense(3)])
        printing.compile("sgd", LOSS)
    assert executions_of([], made=printing) == BATCHES
    assert executions_of([], made=made) < BATCHES


def test_slow_steps_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_ahead, "PAUSE", 0.0)
    assert executions_of([]) == BATCHES


def test_a_second_run_compiles_nothing() -> None:
    made = model()
    made.fit(X, Y, BATCH, verbose=0)
    with device_work() as work:
        made.fit(X, Y, BATCH, epochs=2, verbose=0)
    assert work.counts.programs == 0


@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 1 << 22)), max_size=20))
def test_lengths(asked: list[tuple[int, int]]) -> None:
    length, before = StepsAhead(), 0.5
    for left, output_bytes in asked:
        with length.timed(left, output_bytes) as steps:
            assert 1 <= steps <= max(1, 2 * before)
            assert steps <= left
            assert steps == 1 or steps * output_bytes <= 1 << 20
        before = max(before, steps)
