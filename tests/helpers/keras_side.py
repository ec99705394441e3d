"""Calls of a Keras model (`fit`, `evaluate`, `save`, ...) with fixed data, and stock Keras in float64."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np

from tests.helpers import keras_updates
from tests.keras_ipu.training.test_keras_split import Scaled, built, data

SAMPLES = 64
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[np.ndarray, np.ndarray]]]] = {
    "sequential": (lambda: built("sequential"), data),
    "embedding": (lambda: keras_updates.seeded("embedding"), keras_updates.data),
}
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "momentum": lambda: keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=1.0),
    "adam": lambda: keras_updates.with_dense_gradients(keras.optimizers.Adam(0.01, clipnorm=1.0)),
}


@dataclasses.dataclass
class Side:
    """A model, and how many samples it is given at a time.

    Attributes:
        model: the model.
        kind: of `MODELS`.
        optimizer: of `OPTIMIZERS`.
        batch: samples of a batch.
        scale: what its loss is multiplied with.
        steps: of an execution, for each replica.
    """

    model: Any
    kind: str
    optimizer: str
    batch: int
    scale: int = 1
    steps: int = 1

    def __post_init__(self) -> None:
        x, y = MODELS[self.kind][1]()
        self.x, self.y = x[:SAMPLES], y[:SAMPLES]
        self.compile()

    def compile(self) -> None:
        """Compiles the model, with a new optimizer."""
        optimizer = OPTIMIZERS[self.optimizer]()
        self.model.compile(optimizer, Scaled(self.scale), metrics=["accuracy"], steps_per_execution=self.steps)

    def fit(self, validated: bool = False) -> list[Any]:
        """Two epochs; the losses and metrics by name."""
        validation = (self.x[::-1], self.y[::-1]) if validated else None
        given: dict[str, Any] = {"validation_data": validation, "validation_batch_size": self.batch}
        history = self.model.fit(self.x, self.y, self.batch, epochs=2, verbose=0, shuffle=False, **given).history
        return [np.array(history[name]) / (self.scale if "loss" in name else 1) for name in sorted(history)]

    def evaluate(self) -> list[Any]:
        """The loss and the metric."""
        loss, accuracy = self.model.evaluate(self.x, self.y, self.batch, verbose=0)
        return [np.array(loss) / self.scale, np.array(accuracy)]

    def predict(self) -> list[Any]:
        """The predictions."""
        return [self.model.predict(self.x, self.batch, verbose=0)]

    def write(self) -> list[Any]:
        """The host writes the weights, as a callback or the user would."""
        self.model.set_weights([0.9 * each for each in self.model.get_weights()])
        return []

    def call(self) -> list[Any]:
        """The host calls the model."""
        return [keras.ops.convert_to_numpy(self.model(self.x[:3]))]

    def save(self) -> list[Any]:
        """Saves the model and goes on with what was loaded."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.keras"
            self.model.save(path)
            self.model = keras.models.load_model(path, compile=False)
        self.compile()
        return []

    def results(self, call: str) -> list[Any]:
        """Returns the result of a call, and the weights after it."""
        return [*CALLS[call](self), *self.model.get_weights()]


CALLS: dict[str, Callable[[Side], list[Any]]] = {
    "fit": Side.fit,
    "fit_validated": lambda side: side.fit(validated=True),
    "evaluate": Side.evaluate,
    "predict": Side.predict,
    "write": Side.write,
    "call": Side.call,
    "save": Side.save,
}


@contextlib.contextmanager
def float64() -> Iterator[None]:
    """Keras computes in float64, from the first values that it has in float32."""
    float32 = {kind: make().get_weights() for kind, (make, _) in MODELS.items()}
    before = dict(MODELS)

    def exact(kind: str) -> Any:
        model = before[kind][0]()
        model.set_weights(float32[kind])
        return model

    with jax.enable_x64(True):
        keras.config.set_floatx("float64")
        keras.config.set_dtype_policy("float64")
        MODELS.update({kind: (functools.partial(exact, kind), data) for kind, (_, data) in before.items()})
        try:
            yield
        finally:
            MODELS.update(before)
            keras.config.set_floatx("float32")
            keras.config.set_dtype_policy("float32")
