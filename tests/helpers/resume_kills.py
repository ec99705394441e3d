"""Kills a training run by SIGKILL at random moments, checkpoints included, and damages its checkpoints.

`python -m tests.helpers.resume_kills --kills 200 --damaged 1000` says how many of each there were. It fails where the
newest checkpoint cannot be read, where a run that was killed and resumed does not end with the bits of one that was
not, and where a damaged file is read as a good one.

The processes are forked from one that has imported everything and run nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import keras
import numpy as np

import ipu_tf as ipu
import keras_ipu
from ipu_tf._checkpoints.checkpoint_folder import CheckpointFolder

X = np.random.default_rng(3).normal(size=(48, 6)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)
ENDED = 0


class Started(keras.callbacks.Callback):
    """Makes a file when a step has run, so that kills meet steps and checkpoints, and not compilations alone."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def get_state(self) -> None:
        """Returns nothing: the next process has its own."""

    def set_state(self, state: Any) -> None:
        """Takes nothing."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        Path(self.path).touch()
        time.sleep(0.005)


def train(folder: Path, result: Path) -> None:
    """Trains a small model with a checkpoint each step, and writes a checksum of what came of it."""
    keras.utils.set_random_seed(11)
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(32), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
        )
        model.compile(keras.optimizers.Adam(0.01, gradient_accumulation_steps=3), "mse", metrics=["mae"])
        resume = keras_ipu.callbacks.ExactResume(folder, every=1)
        history = model.fit(X, Y, 4, epochs=12, verbose=0, callbacks=[Started(f"{result}.started"), resume]).history
    ended = hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights()) + repr(history).encode())
    result.write_text(ended.hexdigest())


def forked(folder: Path, result: Path) -> int:
    """Starts a process that trains; returns its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        train(folder, result)
        status = ENDED
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)


def ended(child: int) -> None:
    """Waits for a process that is not killed."""
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == ENDED, status


def killed(child: int, started: Path, after: float | None) -> bool:
    """Kills a process some seconds after its first step, or at once; returns whether it still ran.

    Args:
        child: its id.
        started: the file that it makes when it has run a step.
        after: seconds; None for a random moment before that.
    """
    until = float("inf") if after is not None else time.monotonic() + random.uniform(0.0, 3.0)
    while time.monotonic() < until:
        if after is not None and started.exists() and until == float("inf"):
            until = time.monotonic() + after
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == ENDED, status
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def readable(folder: Path) -> int:
    """Checks that the newest checkpoint in a folder is whole; returns how many there are."""
    opened = CheckpointFolder(folder)
    try:
        files = opened.files()
        found = opened.newest()
        assert (found is None) == (not files), files
        assert found is None or found[0] == files[0], (found, files)
        return len(files)
    finally:
        opened.close()


def kills(count: int, rng: random.Random, root: Path) -> int:
    """Kills so many processes; returns how many runs they were."""
    (root / "whole").mkdir()
    ended(forked(root / "whole", root / "wanted"))
    wanted, done, runs = (root / "wanted").read_text(), 0, 0
    while done < count:
        folder, result = root / f"run {runs}", root / f"result {runs}"
        runs += 1
        folder.mkdir()
        started = Path(f"{result}.started")
        while not result.exists():
            started.unlink(missing_ok=True)
            if done == count:
                ended(forked(folder, result))
            elif killed(forked(folder, result), started, None if rng.random() < 0.1 else rng.uniform(0.0, 0.4)):
                done += 1
                print(f"{done} kills, {readable(folder)} checkpoints", flush=True)
        assert result.read_text() == wanted, runs
    return runs


def damaged(count: int, rng: random.Random, folder: Path) -> int:
    """Damages the newest of two checkpoints so many times; returns how often it was read as good."""
    older, newer = sorted(folder.glob("checkpoint-*"))
    good, other = newer.read_bytes(), older.read_bytes()
    taken = 0
    for number in range(count):
        newer.write_bytes(damage(good, other, number, rng))
        opened = CheckpointFolder(folder)
        found = opened.newest()
        opened.close()
        assert found is not None
        taken += found[0] != older
    newer.write_bytes(good)
    return taken


def damage(good: bytes, other: bytes, number: int, rng: random.Random) -> bytes:
    """Returns other bytes than those of a file: changed, cut off, zeros, empty, longer, or in part another file's."""
    place, kind = rng.randrange(len(good)), number % 6
    changed = bytearray(good)
    if kind == 0:
        changed[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del changed[place:]
    elif kind == 2:
        changed[place : place + 512] = bytes(min(512, len(good) - place))
        changed[-1] ^= 1
    elif kind == 3:
        changed = changed[:0] if rng.random() < 0.2 else changed + bytes(rng.randrange(1, 100))
    elif kind == 4:  # another file's seal
        changed[:512] = other[:512]
    else:
        del changed[place]
    return bytes(changed) if bytes(changed) != good else good[:-1]


def main() -> int:
    """Exit code 1 if a damaged file was read as good."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.resume_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="processes to kill (200)")
    parser.add_argument("--damaged", type=int, default=1000, help="files to damage (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of moments and damages (0)")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as root:
        runs = kills(chosen.kills, rng, Path(root))
        print(f"{chosen.kills} kills in {runs} runs: every newest checkpoint was read, all ended with the same bits.")
        taken = damaged(chosen.damaged, rng, Path(root) / "whole")
    print(f"{chosen.damaged} damaged checkpoints, {taken} read as good.")
    return int(taken > 0)


if __name__ == "__main__":
    sys.exit(main())
