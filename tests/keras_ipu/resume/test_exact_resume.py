"""`ExactResume`: a run that was stopped anywhere ends with the bits of one that was not, on both back ends."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_ipu
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import numbers
from tests.helpers.some_ipus import ipus

ROOT = Path(__file__).resolve().parents[3]
X, Y = numbers(44, 4), numbers(44, 1)
Error = ValueError  # the class of CheckpointError that users catch


class StoppedError(Exception):
    """In place of what kills a process."""


class StopAt(keras.callbacks.Callback):
    """Stops a run before an execution, or tells it to end then; counts those of its own process alone."""

    def __init__(self, execution: int | None, by_signal: bool) -> None:
        super().__init__()
        self._left = execution
        self._by_signal = by_signal

    def get_state(self) -> Any:
        return None

    def set_state(self, state: Any) -> None:
        assert state is None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._left == 0:
            if not self._by_signal:
                raise StoppedError
            os.kill(os.getpid(), signal.SIGTERM)
        self._left = None if self._left is None else self._left - 1


class Decay(keras.callbacks.Callback):
    """A callback with state: makes the learning rate depend on how many epochs it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [0.0]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(float(epoch))
        self.model.optimizer.learning_rate = 0.01 / sum(self.seen + [1.0])


class Batches(keras.utils.PyDataset):
    """Data by number, shuffled by Keras and by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._random = np.random.default_rng(4)
        self._order = np.arange(11)

    def on_epoch_end(self) -> None:
        self._order = self._random.permutation(self._order)

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        first = 4 * int(self._order[index])
        return X[first : first + 4], Y[first : first + 4]


def _dataset(repeat: bool = False) -> tf.data.Dataset:
    samples = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(20, seed=5)
    return samples.batch(4, drop_remainder=True).repeat() if repeat else samples.batch(4)


def _generated() -> Iterator[Any]:
    for start in itertools.cycle(range(0, 40, 4)):
        yield X[start : start + 4], Y[start : start + 4]


DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": 3},
    "arrays in order": lambda: {"x": X, "y": Y, "batch_size": 4, "shuffle": False},
    "dataset": lambda: {"x": _dataset(), "shuffle": False},
    "endless dataset": lambda: {"x": _dataset(repeat=True), "steps_per_epoch": 8, "shuffle": False},
    "generator": lambda: {"x": _generated(), "steps_per_epoch": 8, "shuffle": False},
    "PyDataset": lambda: {"x": Batches()},
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a model is trained."""

    data: str = "arrays"
    replicas: int = 1
    accumulation: int = 1
    steps: int = 1
    stages: int = 1
    own_accumulation: bool = False


def made(setting: Setting) -> keras.Model:
    keras.utils.set_random_seed(7)
    noise: list[Any] = [] if setting.stages > 1 else [keras.layers.Dropout(0.3), keras.layers.BatchNormalization()]
    parts = [keras.layers.Dense(6, "relu"), *noise, keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *parts])
    count = 2 if setting.own_accumulation else None
    optimizer = keras.optimizers.Adam(0.01, gradient_accumulation_steps=count)
    model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=setting.steps)
    if setting.stages > 1:
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=setting.accumulation)
        model.set_pipeline_stage_assignment([0, 1])
    elif setting.accumulation > 1:
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=setting.accumulation)
    return model


def fitted(
    folder: Path | None, setting: Setting, stop: int | None = None, epochs: int = 3, by_signal: bool = False
) -> Any:
    """Weights and history of a run of a program from its beginning; None where it was stopped."""
    with ipus(setting.replicas * setting.stages) as strategy, strategy.scope():
        model = made(setting)
        resume = [] if folder is None else [keras_ipu.callbacks.ExactResume(folder, every=1)]
        callbacks = [*resume, Decay(), StopAt(stop, by_signal)]
        try:
            given = DATA[setting.data]()
            told = model.fit(**given, epochs=epochs, verbose=0, callbacks=callbacks, validation_data=(X[:8], Y[:8]))
        except StoppedError:
            return None
        except SystemExit as ended:
            assert by_signal and ended.code == keras_ipu.callbacks.ExactResume.EXIT_CODE == 75
            return None
        return [weight.tobytes() for weight in model.get_weights()], told.history


SHORT = [(Setting(), (15,)), (Setting("endless dataset", steps=2), (5,))]
LONG = [
    (Setting(), (2, 29)),
    (Setting(accumulation=2, steps=2), (6, 7)),
    (Setting("arrays in order", own_accumulation=True), (3, 11)),
    (Setting("arrays in order", replicas=2), (4, 7)),
    (Setting("arrays in order", accumulation=2, stages=2, steps=4), (4,)),
    (Setting("dataset"), (17,)),
    (Setting("endless dataset", steps=2), (2,)),
    (Setting("generator"), (10,)),
    (Setting("PyDataset"), (4, 13)),
]
CASES = [
    pytest.param(setting, stop, id=f"{setting.data}, {name} {number}, {stop}", marks=marks)
    for name, settings, marks in (("short", SHORT, []), ("long", LONG, [pytest.mark.slow]))
    for number, (setting, stops) in enumerate(settings)
    for stop in stops
]


@pytest.mark.parametrize(("setting", "stop"), CASES)
def test_a_stopped_run_ends_with_the_same_bits(tmp_path: Path, setting: Setting, stop: int) -> None:
    with device_work() as did:
        wanted = fitted(None, setting)
    assert did.counts.executions > 0
    by_signal = setting.data == "endless dataset"
    assert fitted(tmp_path, setting, stop, by_signal=by_signal) is None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert fitted(tmp_path, setting) == wanted


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the oldest first."""
    return sorted(folder.glob("checkpoint-*"))


def test_damaged_checkpoints_and_other_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting("arrays in order")
    wanted = fitted(None, setting, epochs=2)
    assert fitted(tmp_path, setting, 9, epochs=2) is None
    older, newer = checkpoints(tmp_path)
    newer.write_bytes(newer.read_bytes()[:-1])
    caplog.clear()
    assert fitted(tmp_path, setting, epochs=2) == wanted
    assert "is damaged" in caplog.text and f"goes on from '{older}'" in caplog.text
    with pytest.raises(Error, match="option gradient_accumulation_steps"):
        fitted(tmp_path, dataclasses.replace(setting, accumulation=2, steps=2), epochs=2)
    with pytest.raises(Error, match="data: shuffle: False in the checkpoint, True here"):
        fitted(tmp_path, Setting(), epochs=2)
    for path in checkpoints(tmp_path):
        path.write_bytes(b"")
    with pytest.raises(Error, match="To train from the beginning, remove the folder"):
        fitted(tmp_path, setting, epochs=2)


def test_stock_keras_reads_the_weights(tmp_path: Path) -> None:
    weights, _ = fitted(tmp_path, Setting(), epochs=1)
    model = keras.models.clone_model(made(Setting()))
    model.load_weights(checkpoints(tmp_path)[-1])
    assert [weight.tobytes() for weight in model.get_weights()] == weights


class WithFile(keras.callbacks.Callback):
    def on_train_begin(self, logs: Any = None) -> None:
        self.file = object()


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "generator without length": (lambda: {"x": _generated(), "shuffle": False}, "`steps_per_epoch`"),
    "callback": (lambda: {"x": X, "y": Y, "shuffle": False, "callbacks": [WithFile()]}, "file of WithFile"),
    "BackupAndRestore": (
        lambda: {"x": X, "y": Y, "shuffle": False, "callbacks": [keras.callbacks.BackupAndRestore("unused")]},
        "Received: both",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_resumed_is_refused_before_it_trains(tmp_path: Path, case: str) -> None:
    given, message = REFUSED[case]
    arguments = given()
    callbacks = [keras_ipu.callbacks.ExactResume(tmp_path), *arguments.pop("callbacks", [])]
    with ipus(1) as strategy, strategy.scope(), device_work() as did:
        model = made(Setting())
        with pytest.raises(Error, match=message):
            model.fit(**arguments, callbacks=callbacks, verbose=0)
    assert did.counts.executions == 0


def test_stock_models_and_two_callbacks_are_refused(tmp_path: Path) -> None:
    resume = keras_ipu.callbacks.ExactResume(tmp_path)
    with pytest.raises(ValueError, match="another model, or one with run_eagerly=True"):
        made(Setting()).fit(X, Y, callbacks=[resume], verbose=0)
    with ipus(1) as strategy, strategy.scope(), pytest.raises(Error, match="Received: 2"):
        made(Setting()).fit(X, Y, callbacks=[resume, keras_ipu.callbacks.ExactResume(tmp_path)], verbose=0)


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Error, match="folder that can be written to"):
        fitted(tmp_path / "file", Setting("arrays in order"))


@pytest.mark.parametrize("every", [0, -1, True, 1.5, None, "", "5", "0 minutes", "five minutes", "-5 minutes"])
def test_bad_intervals(tmp_path: Path, every: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="`every` must be"):
        keras_ipu.callbacks.ExactResume(tmp_path, every=every)


@pytest.mark.parametrize("stop", [pytest.param(4, marks=pytest.mark.slow), 12])
def test_data_without_a_seed_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int) -> None:
    seeds = itertools.count()

    def unseeded() -> dict[str, Any]:
        return {
            "x": tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(44, seed=next(seeds)).batch(4),
            "shuffle": False,
        }

    monkeypatch.setitem(DATA, "unseeded", unseeded)
    assert fitted(tmp_path, Setting("unseeded"), stop, epochs=2) is None
    with pytest.raises(Error, match="Are all sources of randomness seeded"):
        fitted(tmp_path, Setting("unseeded"), epochs=2)
