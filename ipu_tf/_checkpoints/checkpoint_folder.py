"""Folder with the last two checkpoints of one run, and the thread that writes them."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from ipu_tf._checkpoints.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from ipu_tf.device.cache.sealed_file import DamagedFile, ForeignFile
from ipu_tf.device.cache.whole_file import TEMPORARY

_log = logging.getLogger("ipu_tf")
_NAME = re.compile(r"checkpoint-(\d{8})\.weights\.h5")
_LOCK = "lock"
ENDING = 5.0
"""Seconds that a folder's last run may take to end."""

_TAKEN = "'{}' must belong to one run. Received: one that another run writes to now. Wait for its end, or use another."


class CheckpointError(ValueError):
    """Raised if a run cannot be resumed exactly from a folder, or its checkpoints cannot be written there."""


def number_of(path: Path) -> int:
    """Returns the number in the name of a checkpoint."""
    match = _NAME.fullmatch(path.name)
    assert match is not None, path
    return int(match[1])


class CheckpointFolder:
    """The checkpoints of one run: files `checkpoint-00000012.weights.h5`, of which the last two are kept.

    Args:
        path: of the folder; made if there is none.

    Raises:
        CheckpointError: if it cannot be written to, or another process writes to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._probe()
            self._lock = open(path / _LOCK, "ab")  # noqa: SIM115 - held until `close`
        except OSError as error:
            raise CheckpointError(
                f"Checkpoints must go into a folder that can be written to. Received: '{path}': {error}."
            ) from error
        self._take_lock()
        for partial in path.glob(f"checkpoint-*{TEMPORARY}"):  # of a process that was killed
            partial.unlink(missing_ok=True)

    def _probe(self) -> None:
        probe = self.path / f"probe.{uuid.uuid4().hex}{TEMPORARY}"
        probe.touch()
        probe.unlink()

    def _take_lock(self) -> None:
        """Takes the folder, which a process that was killed may hold until its last thread has ended."""
        until = time.monotonic() + ENDING
        while True:
            try:
                return fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    return None  # a file system without locks
                if time.monotonic() > until:
                    self._lock.close()
                    raise CheckpointError(_TAKEN.format(self.path)) from None
            time.sleep(0.05)

    def close(self) -> None:
        """Leaves the folder to other runs."""
        self._lock.close()

    def files(self) -> list[Path]:
        """Returns the checkpoints, the newest first."""
        return sorted((path for path in self.path.iterdir() if _NAME.fullmatch(path.name)), reverse=True)

    def whole(self) -> Iterator[tuple[int, Checkpoint]]:
        """Returns the checkpoints that are whole, by their numbers, the newest first; warns of each that is not."""
        for path in self.files():
            try:
                yield number_of(path), read_checkpoint(path)
            except (DamagedFile, ForeignFile, OSError) as error:
                _log.warning("ipu_tf: %s The checkpoint before it is taken.", error)

    def newest(self) -> tuple[Path, Checkpoint] | None:
        """Returns the newest checkpoint that is whole, and logs a warning for each that is not; None if there is none.

        Raises:
            CheckpointError: if there are checkpoints, but none is whole.
        """
        for number, checkpoint in self.whole():
            return self.path_of(number), checkpoint
        if files := self.files():
            raise CheckpointError(
                f"'{self.path}' must hold a checkpoint that can be read. Received: {len(files)} that cannot, as the "
                "warnings say. To train from the beginning, remove the folder."
            )
        return None

    def path_of(self, number: int) -> Path:
        """Returns the path of the checkpoint with a number."""
        return self.path / f"checkpoint-{number:08}.weights.h5"

    def last_number(self) -> int:
        """Returns the number of the newest checkpoint, whole or not; 0 if there is none."""
        return max(map(number_of, self.files()), default=0)

    def write(self, checkpoint: Checkpoint, number: int, kept: int | None) -> Path:
        """Writes a checkpoint, then removes all others but one.

        Args:
            checkpoint: what to write.
            number: its own.
            kept: the number of the one that stays; None if there is none.

        Raises:
            OSError: if there is no room, or no right to write. The checkpoints that are there stay.
        """
        path = self.path_of(number)
        write_checkpoint(path, checkpoint)
        self._sync()
        for old in self.files():
            if number_of(old) not in (number, kept):
                old.unlink(missing_ok=True)
        return path

    def _sync(self) -> None:
        """Has the folder's entries written to the disk, as the file itself is."""
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class BackgroundWriter:
    """Runs one job at a time in a thread of its own. An error of one is logged, and raised by `wait`."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a job runs."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def failed(self) -> bool:
        """Whether the last job failed, if it has ended."""
        return self._error is not None

    def start(self, job: Callable[[], object]) -> None:
        """Starts a job, when the one before it has ended."""
        self.join()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(job,), name="ipu_tf checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Waits for the job that runs.

        Raises:
            CheckpointError: if the last job failed.
        """
        self.join()
        error, self._error = self._error, None
        if error is not None:
            raise CheckpointError(f"The last checkpoint could not be written: {error}.") from error

    def join(self) -> None:
        """Waits for the job that runs, whatever comes of it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self, job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:  # noqa: B036 - it is of another thread, which `wait` tells
            self._error = error
            _log.warning(
                "ipu_tf: a checkpoint could not be written: %s. Training goes on, the checkpoints before it are "
                "unchanged, and the next one is tried when it is due.",
                error,
            )
