"""Sequences of calls of a split Keras model, against stock Keras: `python -m tests.helpers.keras_sequences`.

Each sequence draws a way to split the model and calls of `fit` (with and without `validation_data`), `evaluate`,
`predict`, saving and loading, writes of the host and calls on the host; after each call its results and the weights
are compared. Models are dense or look rows up in a table, optimizers SGD with momentum or Adam, which divides by the
roots of second moments and so magnifies round-off where gradients nearly cancel: where float32's results differ by
more than 1e-5, stock Keras does the sequence again in float64, and the device may be at most twice as far from that as
stock Keras in float32 is. The backend of Keras and the number of JAX devices are those of the process:
`KERAS_BACKEND`, and `XLA_FLAGS=--xla_force_host_platform_device_count=4`.
`keras_sequence_checks.py` is a sample, which `tests/keras_ipu/training/test_keras_sequences.py` runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import random
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import keras

import tests.conftest  # noqa: F401 - settings that TensorFlow reads when it is imported
from keras_ipu.parity.report import difference
from tests.helpers.keras_side import CALLS, MODELS, Side, float64
from tests.helpers.some_ipus import ipus
from tests.keras_ipu.training.test_keras_split import RTOL, stages_for

BATCH = 4
SPLITS = ((1, 1, 1), (2, 1, 1), (4, 1, 1), (2, 2, 1), (1, 4, 2), (2, 4, 2), (1, 8, 4))
"""Replicas, micro-batches and stages."""
FIXED = (
    ("fit_validated", "fit"),
    ("fit", "evaluate", "predict", "fit"),
    ("evaluate", "predict", "fit", "evaluate"),
    ("predict", "write", "fit", "save", "predict", "fit_validated"),
)


@dataclasses.dataclass(frozen=True)
class Calls:
    """Calls of a model.

    Attributes:
        split: replicas, micro-batches and stages.
        kind: of `MODELS`.
        optimizer: of `OPTIMIZERS`.
        calls: of `CALLS`, one after the other.
    """

    split: tuple[int, int, int]
    kind: str
    optimizer: str
    calls: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([str(self.split), self.kind, self.optimizer, *self.calls])

    def differing(self) -> list[str]:
        """Returns the differences from stock Keras, by call; empty if there are none."""
        found, stock = self.on_device(), self.stock()
        distances = [_worst(*pair) for pair in zip(found, stock, strict=True)]
        if max(distances) <= RTOL:
            return []
        with float64():
            exact = self.stock()
        bounds = [max(RTOL, 2 * _worst(*pair)) for pair in zip(stock, exact, strict=True)]
        errors = [_worst(*pair) for pair in zip(found, exact, strict=True)]
        rows = zip(self.calls, errors, bounds, distances, strict=True)
        shown = [f"{call}: {away:.1e} from float32, {error:.1e} from float64" for call, error, _, away in rows]
        wrong = any(not error <= bound for error, bound in zip(errors, bounds, strict=True))
        return shown if wrong else []

    def stock(self) -> list[list[Any]]:
        """The results of each call of stock Keras on whole batches."""
        replicas, count, _ = self.split
        side = Side(MODELS[self.kind][0](), self.kind, self.optimizer, BATCH * replicas * count, replicas * count)
        return [side.results(call) for call in self.calls]

    def on_device(self) -> list[list[Any]]:
        """The results of each call where the model is split."""
        replicas, count, stages = self.split
        with ipus(replicas * stages) as strategy, strategy.scope():
            model = _split(MODELS[self.kind][0](), count, stages)
            side = Side(model, self.kind, self.optimizer, BATCH, steps=2 * count if stages > 1 else count)
            return [side.results(call) for call in self.calls]


def _worst(found: list[Any], wanted: list[Any]) -> float:
    """The largest difference between results of a call, relative to the largest element of each."""
    return max((difference("", *pair).relative for pair in zip(found, wanted, strict=True)), default=0.0)


def _split(model: Any, count: int, stages: int) -> Any:
    options: dict[str, Any] = {"gradient_accumulation_steps_per_replica": count}
    if stages > 1:
        stages_for(model, stages)
        model.set_pipelining_options(**options)
    elif count > 1:
        model.set_gradient_accumulation_options(**options)
    model.set_replication_options(replicated_metric_reduction_method="MEAN")
    return model


def sequences(count: int, seed: int) -> list[Calls]:
    """Returns the fixed sequences, and so many random ones."""
    rng = random.Random(seed)
    drawn = [tuple(rng.choices(sorted(CALLS), k=rng.randint(3, 6))) for _ in range(count)]
    kinds = itertools.cycle([("sequential", "adam"), ("embedding", "adam"), ("sequential", "momentum")])
    return [Calls(SPLITS[place % len(SPLITS)], *next(kinds), calls) for place, calls in enumerate([*FIXED, *drawn], 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs sequences; gives the exit status: 0 if none differs from stock Keras."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.keras_sequences", description=__doc__)
    parser.add_argument("--count", type=int, default=30, help="random sequences beside the fixed ones")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args(arguments)
    # Keras makes arrays of JAX's in a way that NumPy 2 no longer likes.
    warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
    wrong, chosen = 0, sequences(wanted.count, wanted.seed)
    for sequence in chosen:
        try:
            found = sequence.differing()
        except Exception as error:  # the others run all the same
            found = [f"{type(error).__name__}: {error}"]
        wrong += bool(found)
        print(sequence, *(["DIFFERS", *found] if found else []), flush=True)
    print(f"{len(chosen)} sequences with Keras on {keras.backend.backend()}, {wrong} differ from stock Keras.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
