"""`ExactResume`: a callback by which a `fit` that was killed goes on as if it had not been."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras

from keras_ipu.resume.resumable_run import ResumableRun
from keras_ipu.resume.save_interval import SaveInterval
from keras_ipu.resume.termination import EXIT_CODE


class ExactResume(keras.callbacks.Callback):
    """Saves a run of `fit` now and then, and has the next one go on from there, with the same bits.

    A run that is resumed ends with the weights, losses and history of one that was never stopped. The same program is
    started again; `fit` finds the newest checkpoint that is whole. Checkpoints are written in the background, beside
    the last two, which are kept. At SIGTERM the run is saved, and the process exits with `EXIT_CODE`.

    Weights in a checkpoint are read by stock Keras: `model.load_weights(path)`.

    Args:
        folder: of the checkpoints, made if there is none. One folder for one call of `fit`.
        every: how often a checkpoint is written: a number of steps, at least 1, or a time, such as "5 minutes",
            "30 seconds" or "1 hour". It is written after the execution in which it is due.

    Attributes:
        resumed_from: the checkpoint that the last `fit` went on from; None if it began anew.

    Raises:
        TypeError, ValueError: for an `every` of another form.
        CheckpointError: in `fit`, a ValueError: where the run could not be resumed exactly; where the folder has
            checkpoints of another run, or none that is whole; where it cannot be written to.

    Example:
        >>> import tempfile, keras, keras_ipu, numpy as np, ipu_tf as ipu
        >>> config = ipu.config.IPUConfig()
        >>> config.auto_select_ipus = 1
        >>> config.configure_ipu_system()
        >>> keras.utils.set_random_seed(1)
        >>> with ipu.ipu_strategy.IPUStrategy().scope():
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        ...     model.compile("sgd", "mse")
        ...     with tempfile.TemporaryDirectory() as folder:
        ...         resume = keras_ipu.callbacks.ExactResume(folder, every=100)
        ...         history = model.fit(np.ones((8, 2)), np.ones(8), callbacks=[resume], verbose=0)
    """

    EXIT_CODE = EXIT_CODE

    def __init__(self, folder: str | os.PathLike[str], every: int | str = "5 minutes") -> None:
        super().__init__()
        self.folder = Path(folder)
        self.interval = SaveInterval(every)
        self.resumed_from: Path | None = None
        self._run: ResumableRun | None = None

    @contextlib.contextmanager
    def running(self, run: ResumableRun) -> Iterator[None]:
        """Context of a `fit`, which gives the callback its run."""
        self._run = run
        try:
            yield
        finally:
            self._run = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds the checkpoint to go on from."""
        self.resumed_from = self._known_run().begin(self.params["epochs"])

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Restores a run that was stopped within an epoch."""
        self._known_run().epoch_began(epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves the run if a checkpoint is due."""
        self._known_run().execution_ended(batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves the run if a checkpoint is due, or the run ends."""
        self._known_run().epoch_ended(epoch)

    def _known_run(self) -> ResumableRun:
        if self._run is None:
            raise ValueError(
                "ExactResume is for `fit` of a model that was made in the scope of an IPUStrategy, and whose steps run "
                "on the device. Received: another model, or one with run_eagerly=True."
            )
        return self._run
