"""Sequences of calls of a split Keras model, against stock Keras: `python -m tests.helpers.keras_sequences`.

Each sequence draws a way to split the model and calls of `fit` (with and without `validation_data`), `evaluate`,
`predict`, saving and loading, writes of the host and calls on the host; after each call its results and the weights
are compared. The backend of Keras and the number of JAX devices are those of the process: `KERAS_BACKEND`, and
`XLA_FLAGS=--xla_force_host_platform_device_count=4`. `tests/keras_ipu/training/test_keras_sequences.py`
runs a sample.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tests.conftest  # noqa: F401 - settings that TensorFlow reads when it is imported
from keras_ipu.parity.report import difference
from tests.helpers.some_ipus import ipus
from tests.keras_ipu.training.test_keras_split import RTOL, Scaled, built, data, stages_for

BATCH, SAMPLES = 4, 64
SPLITS = ((1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 2, 1), (1, 4, 2), (2, 4, 2), (1, 8, 4))
"""Replicas, micro-batches and stages."""
FIXED = (
    ("fit_validated", "fit"),
    ("fit", "evaluate", "predict", "fit"),
    ("evaluate", "predict", "fit", "evaluate"),
    ("predict", "write", "fit", "save", "predict", "fit_validated"),
)


@dataclasses.dataclass
class Side:
    """A model, and how many samples it is given at a time.

    Attributes:
        model: the model.
        batch: samples of a batch.
        scale: what its loss is multiplied with.
        steps: of an execution, for each replica.
    """

    model: Any
    batch: int
    scale: int
    steps: int

    def compile(self) -> None:
        """Compiles the model, with a new optimizer."""
        optimizer = keras.optimizers.SGD(0.05, momentum=0.9, clipnorm=1.0)  # which magnifies no round-off
        self.model.compile(optimizer, Scaled(self.scale), metrics=["accuracy"], steps_per_execution=self.steps)

    def fit(self, validated: bool = False) -> list[Any]:
        """Two epochs; the losses and metrics by name."""
        x, y = (each[:SAMPLES] for each in data())
        validation = (x[::-1], y[::-1]) if validated else None
        given: dict[str, Any] = {"validation_data": validation, "validation_batch_size": self.batch}
        history = self.model.fit(x, y, self.batch, epochs=2, verbose=0, shuffle=False, **given).history
        return [np.array(history[name]) / (self.scale if "loss" in name else 1) for name in sorted(history)]

    def evaluate(self) -> list[Any]:
        """The loss and the metric."""
        loss, accuracy = self.model.evaluate(*(each[:SAMPLES] for each in data()), self.batch, verbose=0)
        return [np.array(loss) / self.scale, np.array(accuracy)]

    def predict(self) -> list[Any]:
        """The predictions."""
        return [self.model.predict(data()[0][:SAMPLES], self.batch, verbose=0)]

    def write(self) -> list[Any]:
        """The host writes the weights, as a callback or the user would."""
        self.model.set_weights([0.9 * each for each in self.model.get_weights()])
        return []

    def call(self) -> list[Any]:
        """The host calls the model."""
        return [keras.ops.convert_to_numpy(self.model(data()[0][:3]))]

    def save(self) -> list[Any]:
        """Saves the model and goes on with what was loaded."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.keras"
            self.model.save(path)
            self.model = keras.models.load_model(path, compile=False)
        self.compile()
        return []


CALLS: dict[str, Callable[[Side], list[Any]]] = {
    "fit": Side.fit,
    "fit_validated": lambda side: side.fit(validated=True),
    "evaluate": Side.evaluate,
    "predict": Side.predict,
    "write": Side.write,
    "call": Side.call,
    "save": Side.save,
}


def differing(split: tuple[int, int, int], calls: Sequence[str]) -> list[str]:
    """What differs from stock Keras, by call; empty if nothing does."""
    replicas, count, stages = split
    found = []
    stock = Side(built("sequential"), BATCH * replicas * count, replicas * count, 1)
    stock.compile()
    with ipus(replicas * stages) as strategy:
        with strategy.scope():
            side = Side(_on_device(split), BATCH, 1, 2 * count if stages > 1 else count)
            side.compile()
        for place, call in enumerate(calls):
            wanted = CALLS[call](stock)
            with strategy.scope():
                given = CALLS[call](side)
            weights = zip(side.model.get_weights(), stock.model.get_weights(), strict=True)
            every = [*zip(given, wanted, strict=True), *weights]
            worst = max((difference(call, *pair) for pair in every), key=lambda each: each.relative)
            found += [] if worst.within(RTOL, 0.0) else [f"{call}, call {place}: {worst.relative:.1e}"]
    return found


def _on_device(split: tuple[int, int, int]) -> Any:
    replicas, count, stages = split
    model = built("sequential")
    options: dict[str, Any] = {"gradient_accumulation_steps_per_replica": count}
    if stages > 1:
        stages_for(model, stages)
        model.set_pipelining_options(**options)
    elif count > 1:
        model.set_gradient_accumulation_options(**options)
    model.set_replication_options(replicated_metric_reduction_method="MEAN")
    return model


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs sequences; gives the exit status: 0 if none differs from stock Keras."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.keras_sequences", description=__doc__)
    parser.add_argument("--count", type=int, default=30, help="random sequences beside the fixed ones")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args(arguments)
    # Keras makes arrays of JAX's in a way that NumPy 2 no longer likes.
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
    rng = random.Random(wanted.seed)
    drawn = [tuple(rng.choices(sorted(CALLS), k=rng.randint(3, 6))) for _ in range(wanted.count)]
    splits = [SPLITS[place % len(SPLITS)] for place in range(1, 1 + len(FIXED) + wanted.count)]
    wrong = 0
    for split, calls in zip(splits, [*FIXED, *drawn], strict=True):
        try:
            found = differing(split, calls)
        except Exception as error:  # the others run all the same
            found = [f"{type(error).__name__}: {error}"]
        wrong += bool(found)
        print(split, *calls, *(["DIFFERS", *found] if found else []), flush=True)
    print(f"{len(splits)} sequences with Keras on {keras.backend.backend()}, {wrong} differ from stock Keras.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
