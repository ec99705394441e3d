"""`RunFolder`: the checkpoints of one run in all its instances, written in the background."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ipu_tf._checkpoints.checkpoint_file import Checkpoint
from ipu_tf._checkpoints.checkpoint_folder import BackgroundWriter, CheckpointError, CheckpointFolder, number_of
from keras_ipu.resume.instances import Wanted, last_number_of_all, newest_of_all, own_folder, wanted_by_any


class RunFolder:
    """Reads and writes this instance's part of each checkpoint; all instances call it at the same steps.

    Args:
        path: of the run's folder.

    Raises:
        CheckpointError: if it cannot be written to, or is another run's.
    """

    def __init__(self, path: Path) -> None:
        self._folder = CheckpointFolder(own_folder(path))
        self._writer = BackgroundWriter()
        self._tried = 0
        self._wrote = False
        self._complete: int | None = None

    def newest(self) -> tuple[Path, Checkpoint] | None:
        """Returns the newest checkpoint that is whole in all instances; None if there is none. Called before `write`.

        Raises:
            CheckpointError: if there are some, but none that all have whole.
        """
        found = newest_of_all(self._folder)
        self._complete = None if found is None else number_of(found[0])
        self._tried = last_number_of_all(self._folder)
        return found

    def wanted(self, due: bool, told_to_end: bool) -> Wanted:
        """Returns what any of the instances wants, of which this one says whether a checkpoint is due, or its end."""
        return wanted_by_any(Wanted(due, self._writer.busy, self._writer.failed, told_to_end))

    def write(self, checkpoint: Checkpoint, failed: bool) -> None:
        """Writes a checkpoint in the background.

        Args:
            checkpoint: what to write.
            failed: whether an instance could not write the one before: the last one that all have is kept.
        """
        if self._wrote and not failed:
            self._complete = self._tried
        self._wrote, self._tried = True, self._tried + 1
        number, kept = self._tried, self._complete
        self._writer.start(lambda: self._folder.write(checkpoint, number, kept))

    def write_last(self, make: Callable[[], Checkpoint]) -> None:
        """Writes a checkpoint after the one that is being written."""
        self._writer.join()
        self.write(make(), self.wanted(False, False).failed)

    def wait_for_all(self) -> None:
        """Waits until all instances have written: the end of one may be that of the others.

        Raises:
            CheckpointError: if one of them could not.
        """
        self._writer.join()
        if self.wanted(False, False).failed:
            self._writer.wait()
            raise CheckpointError("The last checkpoint could not be written in another instance: see its error.")

    def close(self) -> None:
        """Waits for the checkpoint that is being written, and leaves the folder to other runs.

        Raises:
            CheckpointError: if the last one could not be written.
        """
        try:
            self._writer.wait()
        finally:
            self._folder.close()
