"""Folder with the last two checkpoints of one run, and the thread that writes them."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

from ipu_tf._checkpoints.checkpoint_file import Checkpoint, read_checkpoint, write_checkpoint
from ipu_tf.device.cache.sealed_file import DamagedFile, ForeignFile
from ipu_tf.device.cache.whole_file import TEMPORARY

_log = logging.getLogger("ipu_tf")
_NAME = re.compile(r"checkpoint-(\d{8})\.weights\.h5")
_LOCK = "lock"
_KEPT = 2


class CheckpointError(ValueError):
    """Raised if a run cannot be resumed exactly from a folder, or its checkpoints cannot be written there."""


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
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                return  # a file system without locks
            self._lock.close()
            raise CheckpointError(
                f"'{self.path}' must belong to one run. Received: a folder that another run writes its checkpoints to "
                "now. Wait for it to end, or use another folder."
            ) from None

    def close(self) -> None:
        """Leaves the folder to other runs."""
        self._lock.close()

    def files(self) -> list[Path]:
        """Returns the checkpoints, the newest first."""
        return sorted((path for path in self.path.iterdir() if _NAME.fullmatch(path.name)), reverse=True)

    def newest(self) -> tuple[Path, Checkpoint] | None:
        """Returns the newest checkpoint that is whole, and logs a warning for each that is not; None if there is none.

        Raises:
            CheckpointError: if there are checkpoints, but none is whole.
        """
        files = self.files()
        for path in files:
            try:
                return path, read_checkpoint(path)
            except (DamagedFile, ForeignFile, OSError) as error:
                _log.warning("ipu_tf: %s The checkpoint before it is taken.", error)
        if files:
            raise CheckpointError(
                f"'{self.path}' must hold a checkpoint that can be read. Received: {len(files)} that cannot, as the "
                "warnings say. To train from the beginning, remove the folder."
            )
        return None

    def write(self, checkpoint: Checkpoint) -> Path:
        """Writes a checkpoint behind the others, then removes all but the last two.

        Raises:
            OSError: if there is no room, or no right to write. The checkpoints that are there stay.
        """
        files = self.files()
        number = 1 + max((int(match[1]) for path in files if (match := _NAME.fullmatch(path.name))), default=0)
        path = self.path / f"checkpoint-{number:08}.weights.h5"
        write_checkpoint(path, checkpoint)
        self._sync()
        for old in files[_KEPT - 1 :]:
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

    def start(self, job: Callable[[], object]) -> None:
        """Starts a job, when the one before it has ended."""
        self._join()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(job,), name="ipu_tf checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Waits for the job that runs.

        Raises:
            CheckpointError: if the last job failed.
        """
        self._join()
        error, self._error = self._error, None
        if error is not None:
            raise CheckpointError(f"The last checkpoint could not be written: {error}.") from error

    def _join(self) -> None:
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
