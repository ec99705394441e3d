"""Run before an application, on the device and without it: same seeds, and every loss that Keras logs is printed."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np
import tensorflow as tf

KERAS_2 = os.environ.get("TF_USE_LEGACY_KERAS") == "1"


def seed() -> None:
    """Seeds Python, NumPy, its generators without a seed, and TensorFlow."""
    make = np.random.default_rng
    np.random.default_rng = lambda seed=0: make(seed)
    tf.keras.utils.set_random_seed(0)


class Losses(tf.keras.callbacks.Callback):  # which Keras is found when it runs
    """Prints the losses after each execution of a training, with all their digits."""

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Called by Keras; `logs` has the means over the epoch so far."""
        print(f"\nlogged loss {float((logs or {})['loss'])!r}", flush=True)


def print_losses() -> None:
    """Has each list of callbacks that Keras makes have `Losses`."""
    package = "tf_keras.src.callbacks" if KERAS_2 else "keras.src.callbacks.callback_list"
    callback_list = importlib.import_module(package).CallbackList
    make = callback_list.__init__

    def with_losses(self: Any, callbacks: Any = None, *args: Any, **options: Any) -> None:
        make(self, [*tf.nest.flatten(callbacks or []), Losses()], *args, **options)

    callback_list.__init__ = with_losses


seed()
print_losses()
