"""Prints the project's files whose functions one `fit` runs through: `python -m tests.helpers.training_step_files`.

Two replicas, accumulation, four steps an execution, a callback that reads weights; the backend is that of
KERAS_BACKEND. Files that are only imported do not count.
"""

from __future__ import annotations

import inspect
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import keras
import numpy as np

import ipu_tf as ipu

ROOT = Path(__file__).resolve().parents[2]


class ReadsWeights(keras.callbacks.Callback):
    """Reads the model's weights after each execution."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reads them."""
        self.model.get_weights()


def train() -> None:
    """Makes, compiles and fits a small model on the device."""
    x = np.random.default_rng(0).random((128, 8), np.float32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=2)
        model.compile(keras.optimizers.Adam(clipnorm=1.0), "mse", steps_per_execution=4)
        model.fit(x, x.sum(axis=1, keepdims=True), batch_size=8, epochs=2, verbose=0, callbacks=[ReadsWeights()])


def main() -> None:
    """Trains, and prints the files, a line each."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    files = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        # The body of a module or a class, which an import runs, is no function.
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            files.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        train()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    for file in sorted(files):
        if Path(file).is_relative_to(ROOT):
            print(Path(file).relative_to(ROOT))


if __name__ == "__main__":
    main()
