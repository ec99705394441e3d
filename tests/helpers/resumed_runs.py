"""Runs of `fit` that are stopped and resumed, with data of all kinds."""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import keras_ipu
from tests.helpers.keras_parity import numbers
from tests.helpers.some_ipus import ipus

ROOT = Path(__file__).resolve().parents[3]
X, Y = numbers(44, 4), numbers(44, 1)
Error = ValueError  # the class of CheckpointError that users catch


class StoppedError(Exception):
    """In place of what kills a process."""


class StopAt(keras.callbacks.Callback):
    """Stops a run before an execution, or tells it to end then; counts those of its own process alone."""

    def __init__(self, execution: int | None, by_signal: bool) -> None:
        super().__init__()
        self._left = execution
        self._by_signal = by_signal

    def get_state(self) -> Any:
        return None

    def set_state(self, state: Any) -> None:
        assert state is None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._left == 0:
            if not self._by_signal:
                raise StoppedError
            os.kill(os.getpid(), signal.SIGTERM)
        self._left = None if self._left is None else self._left - 1


class Decay(keras.callbacks.Callback):
    """A callback with state: makes the learning rate depend on how many epochs it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = [0.0]

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.seen.append(float(epoch))
        if isinstance(self.model.optimizer.learning_rate, keras.Variable):  # not a schedule
            self.model.optimizer.learning_rate = 0.01 / sum(self.seen + [1.0])


class Batches(keras.utils.PyDataset):
    """Data by number, shuffled by Keras and by itself."""

    def __init__(self) -> None:
        super().__init__()
        self._random = np.random.default_rng(4)
        self._order = np.arange(11)

    def on_epoch_end(self) -> None:
        self._order = self._random.permutation(self._order)

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        first = 4 * int(self._order[index])
        return X[first : first + 4], Y[first : first + 4]


def _dataset(repeat: bool = False) -> tf.data.Dataset:
    samples = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(20, seed=5)
    return samples.batch(4, drop_remainder=True).repeat() if repeat else samples.batch(4)


def generated() -> Iterator[Any]:
    for start in itertools.cycle(range(0, 40, 4)):
        yield X[start : start + 4], Y[start : start + 4]


DATA: dict[str, Callable[[], dict[str, Any]]] = {
    "arrays": lambda: {"x": X, "y": Y, "batch_size": 3},
    "arrays in order": lambda: {"x": X, "y": Y, "batch_size": 4, "shuffle": False},
    "dataset": lambda: {"x": _dataset(), "shuffle": False},
    "endless dataset": lambda: {"x": _dataset(repeat=True), "steps_per_epoch": 8, "shuffle": False},
    "dataset of unknown length": lambda: {"x": _dataset().filter(lambda x, y: True), "shuffle": False},
    "generator": lambda: {"x": generated(), "steps_per_epoch": 8, "shuffle": False},
    "PyDataset": lambda: {"x": Batches()},
}


PARTS: dict[str, Callable[[], list[keras.layers.Layer]]] = {
    "noise": lambda: [keras.layers.Dense(6, "relu"), keras.layers.Dropout(0.3), keras.layers.BatchNormalization()],
    "stages": lambda: [keras.layers.Dense(6, "relu")],
    "augmented": lambda: [
        keras.layers.Reshape((2, 2, 1)),
        keras.layers.RandomFlip(),
        keras.layers.RandomRotation(0.2, seed=3),
        keras.layers.RandomContrast(0.5, value_range=(-3.0, 3.0)),
        keras.layers.Flatten(),
    ],
    "recurrent": lambda: [keras.layers.Reshape((2, 2)), keras.layers.LSTM(3, dropout=0.2, recurrent_dropout=0.1)],
    "rounded": lambda: [keras.layers.Dense(6, "tanh", dtype="mixed_float16")],  # stochastically
}
"""Layers of a model before its last."""
OPTIMIZERS: dict[str, Callable[..., keras.optimizers.Optimizer]] = {
    "Adam": lambda **own: keras.optimizers.Adam(0.01, **own),
    "momentum": lambda **own: keras.optimizers.SGD(0.01, momentum=0.9, nesterov=True, clipnorm=1.0, **own),
    "average": lambda **own: keras.optimizers.RMSprop(0.01, use_ema=True, ema_overwrite_frequency=3, **own),
    "schedule": lambda **own: keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(0.01, 30), **own),
    "loss scale": lambda **own: keras.optimizers.LossScaleOptimizer(
        keras.optimizers.Adam(0.01, **own), initial_scale=2.0**14, dynamic_growth_steps=5
    ),
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a model is trained."""

    data: str = "arrays"
    parts: str = "noise"
    optimizer: str = "Adam"
    replicas: int = 1
    accumulation: int = 1
    steps: int = 1
    stages: int = 1
    own_accumulation: bool = False


def made(setting: Setting) -> keras.Model:
    keras.utils.set_random_seed(7)
    parts = PARTS["stages" if setting.stages > 1 else setting.parts]()
    model = keras.Sequential([keras.Input((4,)), *parts, keras.layers.Dense(1)])
    optimizer = OPTIMIZERS[setting.optimizer](gradient_accumulation_steps=2 if setting.own_accumulation else None)
    model.compile(optimizer, "mse", metrics=["mae"], steps_per_execution=setting.steps)
    if setting.stages > 1:
        model.set_pipelining_options(gradient_accumulation_steps_per_replica=setting.accumulation)
        model.set_pipeline_stage_assignment([0, 1])
    elif setting.accumulation > 1:
        model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=setting.accumulation)
    return model


def fitted(
    folder: Path | None, setting: Setting, stop: int | None = None, epochs: int = 3, by_signal: bool = False
) -> Any:
    """Weights and history of a run of a program from its beginning; None where it was stopped."""
    rounding = setting.parts == "rounded" and keras.backend.backend() == "tensorflow"  # steps in JAX have none
    with ipus(setting.replicas * setting.stages, stochastic_rounding=rounding) as strategy, strategy.scope():
        model = made(setting)
        resume = [] if folder is None else [keras_ipu.callbacks.ExactResume(folder, every=1)]
        callbacks = [*resume, Decay(), StopAt(stop, by_signal)]
        try:
            given = DATA[setting.data]()
            if setting.data.startswith("arrays"):
                given["validation_data"] = (X[:8], Y[:8])
            told = model.fit(**given, epochs=epochs, verbose=0, callbacks=callbacks)
        except StoppedError:
            return None
        except SystemExit as ended:
            assert by_signal and ended.code == keras_ipu.callbacks.ExactResume.EXIT_CODE == 75
            return None
        return [weight.tobytes() for weight in model.get_weights()], told.history


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, the oldest first."""
    return sorted(folder.glob("checkpoint-*"))
