"""Instances save together, and go on from a checkpoint that all of them have."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_tf._checkpoints.checkpoint_file import Checkpoint
from ipu_tf._checkpoints.checkpoint_folder import CheckpointFolder
from keras_ipu.resume import instances
from keras_ipu.resume.instances import Wanted, last_number_of_all, newest_of_all, own_folder, wanted_by_any
from tests.helpers.resumed_runs import Error
from tests.helpers.subprocess_cases import ROOT

Two = Callable[[Any], None]


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Two:
    """This process is instance 1 of 2; the function sets what instance 0 tells it."""
    told: list[Any] = []
    monkeypatch.setattr(instances, "instance_count", lambda: 2)
    monkeypatch.setattr(instances, "instance_index", lambda: 1)

    def allgather(own: np.ndarray, tensor_name: str) -> np.ndarray:
        theirs = [0] * len(own) + list(told[-1])
        return np.stack([np.asarray(theirs[-len(own) :], own.dtype), own])

    monkeypatch.setattr(instances.distributed, "allgather", allgather)
    return told.append


@contextlib.contextmanager
def numbered(path: Path, numbers: Sequence[int]) -> Iterator[CheckpointFolder]:
    """A folder with checkpoints of these numbers."""
    with contextlib.closing(CheckpointFolder(path)) as folder:
        for number in numbers:
            folder.write(Checkpoint({"number": number}), number, max([0, *(each for each in numbers if each < number)]))
        yield folder


def test_one_that_is_told_to_end_has_all_save(other: Two) -> None:
    other([False, False, False, True])
    assert wanted_by_any(Wanted(True, False, False, False)) == Wanted(True, False, False, True)


@pytest.mark.parametrize(("theirs", "newest"), [([4, 5], 5), ([3, 4], 4), ([5, 6], 5)])
def test_the_newest_that_all_have_is_taken(other: Two, tmp_path: Path, theirs: list[int], newest: int) -> None:
    with numbered(tmp_path, [4, 5]) as folder:
        other(theirs)
        found = newest_of_all(folder)
        assert found is not None and (found[0], found[1].state) == (folder.path_of(newest), {"number": newest})
        assert last_number_of_all(folder) == max(5, theirs[-1])


def test_nothing_in_common_is_an_error_and_nothing_at_all_a_beginning(other: Two, tmp_path: Path) -> None:
    with numbered(tmp_path / "run", [4, 5]) as folder:
        other([])
        with pytest.raises(Error, match=r"all 2 instances have whole. Received, by instance: {0: \[\], 1: \[4, 5\]}"):
            newest_of_all(folder)
    with numbered(tmp_path / "empty", []) as folder:
        assert newest_of_all(folder) is None


@pytest.mark.parametrize(("own", "theirs"), [([1], []), ([], [1])])
def test_a_first_checkpoint_that_only_one_has_is_a_beginning(
    other: Two, tmp_path: Path, own: list[int], theirs: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with numbered(tmp_path, own) as folder:
        other(theirs)
        assert newest_of_all(folder) is None
        assert folder.files() == []
        assert "ended while its first checkpoint was written" in caplog.text


def test_another_number_of_instances_is_refused(other: Two, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_folder(tmp_path) == tmp_path / "instance-1"
    (tmp_path / "checkpoint-00000001.weights.h5").touch()
    with pytest.raises(Error, match="as many instances as the run has, 2. Received: .* of one"):
        own_folder(tmp_path)
    monkeypatch.setattr(instances, "instance_count", lambda: 1)
    assert own_folder(tmp_path) == tmp_path
    (tmp_path / "instance-0").mkdir()
    with pytest.raises(Error, match="as many instances as the run has, 1. Received: .* of several"):
        own_folder(tmp_path)


def killed(*arguments: str) -> str:
    """What `tests.helpers.instance_kills` prints; it fails where something is not as it should be."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.instance_kills", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_run_of_two_instances_that_is_killed_goes_on_with_the_same_bits() -> None:
    said = killed(
        "--kills", "1", "--early", "0", "--seed", "6"
    )  # a run that ends before its moment is followed by another
    # An instance has three if it is killed after it has written one, and before it removes the oldest.
    assert re.search(r"^1: instance 0 .* checkpoints \[[123], [123]\]$", said, re.MULTILINE), said
    assert re.search(r"^1 kills in \d+ runs, each resumed to the same bits", said, re.MULTILINE), said


@pytest.mark.slow
def test_instances_that_are_killed_at_many_moments_go_on_with_the_same_bits_and_all_end() -> None:
    assert "each resumed to the same bits" in killed("--kills", "24", "--seed", "20")
