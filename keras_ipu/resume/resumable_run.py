"""`ResumableRun`: one `fit` that is saved now and then, and that a later one goes on with."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipu_tf._checkpoints.checkpoint_file import Checkpoint
from ipu_tf._checkpoints.checkpoint_folder import CheckpointError
from ipu_tf._checkpoints.random_state import random_state, restore_random_state
from keras_ipu.resume.callback_state import callback_state, check_callbacks, restore_callback
from keras_ipu.resume.data_tracker import DataPosition, DataTracker
from keras_ipu.resume.run_facts import check_same, run_facts
from keras_ipu.resume.run_folder import RunFolder
from keras_ipu.resume.save_interval import SaveInterval
from keras_ipu.resume.termination import EXIT_CODE, Termination
from keras_ipu.resume.variable_access import VariableAccess, restore_variables, variables_state
from keras_ipu.stock import models as keras_models
from keras_ipu.stock.arrays import is_endless_generator

_log = logging.getLogger("ipu_tf")


class ResumableRun:
    """What an `ExactResume` callback does in one `fit`.

    Args:
        path: of the folder.
        interval: says when a checkpoint is due.
        model: the model.
        callbacks: all other callbacks.
        access: to its variables.
        first_epoch: the epoch that the `fit` was asked to begin with.
    """

    def __init__(
        self,
        path: Path,
        interval: SaveInterval,
        model: Any,
        callbacks: Sequence[Any],
        access: VariableAccess,
        first_epoch: int = 0,
    ) -> None:
        self._path = path
        self._interval = interval
        self._model = model
        self._callbacks = callbacks
        self._access = access
        self._first_epoch = first_epoch
        self._folder: RunFolder | None = None
        self._facts: dict[str, str] = {}
        self._pending: Any = None
        self._epoch = self._epochs = self._last_step = 0
        self.tracker = DataTracker()
        self.termination = Termination()

    def begin(self, epochs: int) -> Path | None:
        """Called after the other callbacks' `on_train_begin`: finds the checkpoint to go on from, and returns its path.

        Raises:
            CheckpointError: if the run could not be resumed exactly, or the folder is another run's.
        """
        self._epochs = epochs
        self._check_data()
        check_callbacks(self._callbacks)
        self._facts = run_facts(self._model, self.tracker.iterator, self._callbacks, self._first_epoch)
        self._folder = RunFolder(self._path)
        found = self._folder.newest()
        self._interval.restart()
        if found is None:
            return None
        path, checkpoint = found
        check_same(checkpoint.state["facts"], self._facts, path)
        self._resume(path, checkpoint.state)
        return path

    def close(self) -> None:
        """Waits for the checkpoint that is being written."""
        keras_models.start_at_epoch(self._model, None)
        if self._folder is not None:
            self._folder.close()

    def epoch_began(self, epoch: int) -> None:
        """Called after the other callbacks' `on_epoch_begin`."""
        self._epoch, self._last_step = epoch, 0
        keras_models.start_at_epoch(self._model, None)
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._restore(pending)
            self._last_step = pending["position"]["step"]

    def execution_ended(self, last_step: int) -> None:
        """Called after the other callbacks' `on_train_batch_end`; saves the run if a checkpoint is due.

        Raises:
            SystemExit: if the process was told to end, after the run was saved.
        """
        if self.tracker.ahead:
            return
        done = last_step + 1
        due = self._interval.due(done - self._last_step)
        self._last_step = done
        self.tracker.forget()
        steps = self.tracker.steps_of_epoch
        if steps is None or done >= steps or self._model.stop_training:
            return  # the epoch ends here, or may: it is saved there
        wanted = self._known_folder().wanted(due, self.termination.requested)
        if wanted.exit:
            self._save_and_exit(self.tracker.within_epoch(self._epoch, done))
        if wanted.save and not wanted.busy:
            self._save(self.tracker.within_epoch(self._epoch, done), wanted.failed)

    def epoch_ended(self, epoch: int) -> None:
        """Called after the other callbacks' `on_epoch_end`; raises as `execution_ended` does."""
        position = self.tracker.at_end(epoch)
        ended = bool(self._model.stop_training) or epoch + 1 >= self._epochs
        wanted = self._known_folder().wanted(self._interval.due(0), self.termination.requested)
        if wanted.exit:
            self._save_and_exit(position)
        if ended:
            self._known_folder().write_last(lambda: self._captured(position))
        elif wanted.save and not wanted.busy:
            self._save(position, wanted.failed)

    def _check_data(self) -> None:
        iterator = self.tracker.iterator
        if is_endless_generator(iterator.data_adapter) and iterator.steps_per_epoch is None:
            raise CheckpointError(
                "A run on a generator is resumed by the number of batches, so `fit` needs `steps_per_epoch`. Received: "
                "a generator, and no `steps_per_epoch`."
            )
        iterator.check_order()
        if iterator.num_batches is None:
            _log.warning("ipu_tf: the length of the data is unknown: the first epoch is saved at its end alone.")

    def _resume(self, path: Path, state: Any) -> None:
        position = DataPosition(**state["position"])
        _log.warning(
            "ipu_tf: the run goes on from '%s', in epoch %d after %d steps.", path, position.epoch + 1, position.step
        )
        self._access.create_variables(self._model, self.tracker.iterator)
        self.tracker.iterator.know_length(position.length)
        if state["stopped"] or position.epoch >= self._epochs:
            _log.warning("ipu_tf: the run in '%s' has ended: nothing is left to train.", self._path)
            keras_models.start_at_epoch(self._model, self._epochs)
            self._restore(state)
            return
        keras_models.start_at_epoch(self._model, position.epoch)
        self.tracker.resume(position, position.epoch - self._first_epoch)
        if position.step:
            self._pending = state
        else:
            self._restore(state)

    def _save_and_exit(self, position: DataPosition) -> None:
        folder = self._known_folder()
        folder.write_last(lambda: self._captured(position))
        folder.wait_for_all()
        _log.warning("ipu_tf: the process was told to end. The run is saved in '%s'.", self._path)
        raise SystemExit(EXIT_CODE)

    def _save(self, position: DataPosition, failed: bool) -> None:
        """Copies the state, and has it written in the background."""
        self._interval.restart()
        self._known_folder().write(self._captured(position), failed)

    def _known_folder(self) -> RunFolder:
        assert self._folder is not None, "Keras calls `on_train_begin` first"
        return self._folder

    def _captured(self, position: DataPosition) -> Checkpoint:
        variables, weights = variables_state(self._model, self._access)
        state = {
            "facts": self._facts,
            "position": {**vars(position)},
            "stopped": bool(self._model.stop_training),
            **variables,
            "callbacks": copy.deepcopy([callback_state(callback) for callback in self._callbacks]),
            "random": random_state(),
        }
        return Checkpoint(state, weights)

    def _restore(self, state: Any) -> None:
        restore_variables(self._model, self._access, state, self._path)
        for callback, remembered in zip(self._callbacks, state["callbacks"], strict=True):
            restore_callback(callback, remembered)
        restore_random_state(state["random"])
