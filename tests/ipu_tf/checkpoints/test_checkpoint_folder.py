"""Checkpoints are read as they were written, or not at all; a folder keeps the last two."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

from ipu_tf._checkpoints import checkpoint_folder
from ipu_tf._checkpoints.checkpoint_file import Checkpoint, behind_seal, read_checkpoint, seal_length, write_checkpoint
from ipu_tf._checkpoints.checkpoint_folder import BackgroundWriter, CheckpointError, CheckpointFolder
from ipu_tf._checkpoints.plain_data import NotPlainError
from tests.helpers.resume_kills import damage

STATE: dict[str, Any] = {
    "plain": [None, True, -3, 0.1, float("inf"), "text", (1, (2,)), {3: "three", "x": []}],
    "half": np.arange(3, dtype=np.float16),
    "bfloat16": np.array([1.5, -2], ml_dtypes.bfloat16),
    "scalar": np.float32(0.1),
    "nan": np.array([np.nan, -0.0]),
    "empty": np.zeros((0, 2), np.int8),
}


def bits(state: Any) -> Any:
    """Plain data with arrays as their dtypes, shapes and bytes."""
    if isinstance(state, dict):
        return {key: bits(value) for key, value in state.items()}
    if isinstance(state, np.ndarray | np.generic):
        return type(state), state.dtype, state.shape, state.tobytes()
    return state


@contextlib.contextmanager
def filled(path: Path, count: int = 3) -> Iterator[CheckpointFolder]:
    """A folder to which so many checkpoints were written: their numbers."""
    with contextlib.closing(CheckpointFolder(path)) as folder:
        for number in range(count):
            folder.write(Checkpoint({"number": number}), number + 1, number)
        yield folder


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    weights = {"layers/dense/vars/0": STATE["half"], "layers/dense/vars/1": np.ones(2)}
    write_checkpoint(tmp_path / "one", Checkpoint(STATE, weights))
    assert bits(read_checkpoint(tmp_path / "one").state) == bits(STATE)
    with h5py.File(tmp_path / "one") as file:
        assert file["layers/dense/vars/1"][()].tolist() == [1, 1]
        assert file["layers/dense/vars/0"] == file["ipu_tf/arrays/0"]  # written once


@pytest.mark.parametrize("digits", [1_000, 10_000])
def test_files_of_every_length_have_their_hdf5_at_its_place(digits: int) -> None:
    padded = 0
    for length in range(digits + 100, digits + 200):
        image = bytes(256) + b"x" * (length - 256)
        payload = behind_seal(image)
        sealed = bytes(seal_length(len(payload))) + payload
        assert sealed.rstrip(b"\0") == image and len(sealed) - length in (0, 1)
        padded += len(sealed) - length
    assert padded == 1  # where no length of the payload is right


@pytest.mark.parametrize("value", [object(), {"set": {1}}, np.array([None]), np.array(["text"]), b"bytes"])
def test_other_objects_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(NotPlainError):
        write_checkpoint(tmp_path / "one", Checkpoint(value))
    assert list(tmp_path.iterdir()) == []


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    with filled(tmp_path, 4) as folder:
        (tmp_path / "checkpoint-00000009.weights.h5.0a.partial").write_text("of a process that was killed")
        assert [path.name.split(".")[0] for path in folder.files()] == ["checkpoint-00000004", "checkpoint-00000003"]
    with filled(tmp_path, 0):
        assert len(list(tmp_path.iterdir())) == 3  # with the lock


def test_one_run_has_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_folder, "ENDING", 0.1)
    with filled(tmp_path, 0), pytest.raises(CheckpointError, match="another run writes to now"):
        CheckpointFolder(tmp_path)
    CheckpointFolder(tmp_path).close()


def test_a_run_that_was_killed_may_take_a_moment_to_leave_the_folder(tmp_path: Path) -> None:
    """A process is gone for others before its last thread has closed its files."""
    ending = CheckpointFolder(tmp_path)
    timer = threading.Timer(0.5, ending.close)
    timer.start()
    CheckpointFolder(tmp_path).close()
    timer.join()


def test_damaged_files_are_never_read_as_good_ones(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with filled(tmp_path) as folder:
        _damage_often(folder, caplog)


def _damage_often(folder: CheckpointFolder, caplog: pytest.LogCaptureFixture) -> None:
    newer, older = folder.files()
    rng = random.Random(5)
    good, other = newer.read_bytes(), older.read_bytes()
    for number in range(1000):
        newer.write_bytes(damage(good, other, number, rng))
        caplog.clear()
        found = folder.newest()
        assert found is not None and found[0] == older and found[1].state == {"number": 1}, number
        assert "The checkpoint before it is taken" in caplog.text
    older.write_bytes(b"")
    with pytest.raises(CheckpointError, match="remove the folder"):
        folder.newest()


def test_a_full_disk_leaves_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    writer = BackgroundWriter()
    with filled(tmp_path) as folder:
        before = folder.files()

        def full(file: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            writer.start(lambda: folder.write(Checkpoint({}), 4, 3))
            with pytest.raises(CheckpointError, match="No space left"):
                writer.wait()
        assert "Training goes on" in caplog.text
        assert folder.files() == before and len(list(tmp_path.iterdir())) == 3
        writer.start(lambda: folder.write(Checkpoint({"number": 3}), 5, 3))
        writer.wait()
        found = folder.newest()
        assert found is not None and found[1].state == {"number": 3}


def test_a_rename_that_takes_its_time_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, renamed, may_rename, stock = BackgroundWriter(), threading.Event(), threading.Event(), os.replace

    def slow(source: Any, target: Any) -> None:
        renamed.set()
        assert may_rename.wait(30)
        stock(source, target)

    with filled(tmp_path) as folder:
        monkeypatch.setattr(os, "replace", slow)
        writer.start(lambda: folder.write(Checkpoint({"number": 3}), 4, 3))
        assert renamed.wait(30) and writer.busy  # the caller goes on
        found = folder.newest()
        assert found is not None and found[1].state == {"number": 2} and len(folder.files()) == 2
        may_rename.set()
        writer.wait()
        found = folder.newest()
        assert found is not None and found[1].state == {"number": 3} and len(folder.files()) == 2


def test_a_folder_that_is_read_only_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "touch", read_only)
    with pytest.raises(CheckpointError, match="a folder that can be written to. Received: .*Read-only file system"):
        CheckpointFolder(tmp_path)
