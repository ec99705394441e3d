"""`ExactResume` refuses damaged checkpoints, those of other runs, data without a seed, and bad arguments."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

import keras_ipu
from tests.helpers.device_counts import device_work
from tests.helpers.resumed_runs import (
    DATA,
    Error,
    Setting,
    StopAt,
    StoppedError,
    X,
    Y,
    checkpoints,
    fitted,
    generated,
    made,
)
from tests.helpers.some_ipus import ipus


def test_damaged_checkpoints_other_runs_and_stock_keras(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    setting = Setting("arrays in order")
    wanted = fitted(None, setting, epochs=2)
    # Two runs: one leaves a single checkpoint where the disk is so slow that it is still written when others are due.
    assert [fitted(tmp_path, setting, stop, epochs=2) for stop in (5, 4)] == [None, None]
    older, newer = checkpoints(tmp_path)
    newer.write_bytes(newer.read_bytes()[:-1])
    caplog.clear()
    assert fitted(tmp_path, setting, epochs=2) == wanted
    assert "is damaged" in caplog.text and f"goes on from '{older}'" in caplog.text
    stock = keras.models.clone_model(made(setting))
    stock.load_weights(checkpoints(tmp_path)[-1])
    assert [weight.tobytes() for weight in stock.get_weights()] == wanted[0]
    with pytest.raises(Error, match="option gradient_accumulation_steps"):
        fitted(tmp_path, dataclasses.replace(setting, accumulation=2, steps=2), epochs=2)
    with pytest.raises(Error, match="data: shuffle: False in the checkpoint, True here"):
        fitted(tmp_path, Setting(), epochs=2)
    for path in checkpoints(tmp_path):
        path.write_bytes(b"")
    with pytest.raises(Error, match="To train from the beginning, remove the folder"):
        fitted(tmp_path, setting, epochs=2)


class WithFile(keras.callbacks.Callback):
    def on_train_begin(self, logs: Any = None) -> None:
        self.file = object()


REFUSED: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "generator without length": (lambda: {"x": generated(), "shuffle": False}, "`steps_per_epoch`"),
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


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras saves variables so
def test_arguments_of_callbacks_are_those_of_the_program_that_goes_on(tmp_path: Path) -> None:
    """Others than before are refused, but for where Keras's callbacks write."""

    def run(saved: str, patience: int, stop: int | None = None) -> Any:
        saver = keras.callbacks.ModelCheckpoint(tmp_path / saved)
        patient = keras.callbacks.EarlyStopping("loss", patience=patience)
        resume = keras_ipu.callbacks.ExactResume(tmp_path / "run", every=1)
        with ipus(1) as strategy, strategy.scope():
            model = made(Setting())
            with contextlib.suppress(StoppedError):
                model.fit(X, Y, 8, 3, verbose=0, shuffle=False, callbacks=[saver, patient, resume, StopAt(stop, False)])
        return saver

    run("before.keras", 5, stop=3)
    assert not (tmp_path / "after.keras").exists()
    with pytest.raises(Error, match="arguments of callback 1, EarlyStopping: .*patience=5.* in the checkpoint, "):
        run("after.keras", 1)
    assert run("after.keras", 5).filepath == str(tmp_path / "after.keras")
    assert (tmp_path / "after.keras").exists()


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
