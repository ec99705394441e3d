"""Takes the wait before the first step apart: `python -m benchmarks.first_epoch`.

Each line is a process of its own: a network that is trained for an epoch of one step. Columns are seconds:

trace        TensorFlow traces the step
bridge       TensorFlow makes StableHLO of it
JAX          JAX traces the step: for this project on TensorFlow that is the import of StableHLO
lowering     JAX makes StableHLO of it
XLA          XLA compiles it, all of its passes and LLVM
wall, CPU    from `fit` to its end, by the clock and by all threads of the process
MB           not seconds: the most memory that the process had, in units of 2^20 bytes

The parts are by the clock, and of all programs of the process. What is left of `wall` is data, and the step itself.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import layers

from benchmarks.keras_models import model_of, transformer
from benchmarks.memory import peak_bytes
from benchmarks.startup import answer
from benchmarks.workload import CLASSES, WORKLOADS

PARTS = {
    "/jax/core/compile/jaxpr_trace_duration": "JAX",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "XLA",
}
COLUMNS = ("trace", "bridge", *PARTS.values(), "wall", "CPU", "MB")
WHO = ("ours-tf", "stock-tf", "ours-jax", "stock-jax", "again-tf", "again-jax", "kept-tf", "kept-jax")
"""`again`: in a second process, with the programs that are kept by default; `kept`: with a folder that is asked for."""


@dataclasses.dataclass(frozen=True)
class Network:
    """A network and its data.

    Attributes:
        make: makes the model.
        shape: of a sample.
        batch: samples of the step.
        vocabulary: how many tokens there are; 0 if samples are images.
    """

    make: Callable[[], Any]
    shape: tuple[int, ...]
    batch: int = 16
    vocabulary: int = 0


def _application(name: str) -> Network:
    def make() -> Any:
        return getattr(keras.applications, name)(weights=None, input_shape=(64, 64, 3), classes=CLASSES)

    return Network(make, (64, 64, 3))


def _workload(name: str) -> Network:
    workload = WORKLOADS[name]
    return Network(lambda: model_of(workload), workload.shape, workload.batch, workload.vocabulary)


def _bert() -> Any:
    workload = dataclasses.replace(WORKLOADS["transformer"], shape=(64,))
    tokens = keras.Input(workload.shape, dtype="int32")
    return keras.Model(tokens, layers.Dense(CLASSES, activation="softmax")(transformer(tokens, workload, depth=12)))


NETWORKS = {
    "cnn": Network(lambda: model_of(WORKLOADS["cnn"]), (32, 32, 3), 64),
    "mobilenet": _application("MobileNetV2"),
    "efficientnet": _application("EfficientNetB0"),
    "resnet50": _application("ResNet50"),
    "lstm": _workload("lstm"),
    "dense": _workload("dense"),
    "bert": Network(_bert, (64,), 8, WORKLOADS["transformer"].vocabulary),
}


class Parts:
    """Intervals of the clock that each part of the wait took."""

    def __init__(self) -> None:
        self._intervals: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def note(self, event: str, duration_secs: float, **_: Any) -> None:
        """Notes an event of JAX that ends now."""
        if event in PARTS:
            now = time.perf_counter()
            self._intervals[PARTS[event]].append((now - duration_secs, now))

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function, whose calls are noted."""

        @functools.wraps(function)
        def run(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **named)
            finally:
                self._intervals[part].append((start, time.perf_counter()))

        return run

    def seconds(self) -> dict[str, float]:
        """Returns the seconds of each part; what lies in one another, as traces do, counts once."""
        return {part: _covered(intervals) for part, intervals in self._intervals.items()}


def _covered(intervals: Sequence[tuple[float, float]]) -> float:
    total, reached = 0.0, 0.0
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def data(network: Network) -> tuple[np.ndarray, np.ndarray]:
    """Samples and labels of one batch."""
    random = np.random.default_rng(0)
    size = (network.batch, *network.shape)
    tokens = network.vocabulary
    samples = random.integers(0, tokens, size, np.int32) if tokens else random.random(size, np.float32)
    return samples, random.integers(0, CLASSES, (network.batch,), np.int32)


def _scope(parts: Parts, ours: bool) -> contextlib.AbstractContextManager[Any]:
    """Returns the scope of the model, whose parts are noted from now on.

    Imports are here, so that stock Keras on TensorFlow is measured without JAX, and both without this project.
    """
    if ours or keras.backend.backend() == "jax":
        import jax

        jax.monitoring.register_event_duration_secs_listener(parts.note)
    if not ours:
        return contextlib.nullcontext()
    import ipu_tf as ipu
    from ipu_tf.lowering.tensorflow import tf_private

    tf_private.concrete_function = parts.timed("trace", tf_private.concrete_function)
    tf_private.stablehlo_bytecode = parts.timed("bridge", tf_private.stablehlo_bytecode)
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy().scope()


def probe(name: str, ours: bool) -> dict[str, float]:
    """Trains a network for one step in this process; returns the seconds by column."""
    network, parts = NETWORKS[name], Parts()
    keras.utils.set_random_seed(0)  # positions that a model takes from an untrained layer are constants of its program
    with _scope(parts, ours):
        model = network.make()
        model.compile("adam", "sparse_categorical_crossentropy")
    samples, labels = data(network)
    wall, cpu = time.perf_counter(), time.process_time()
    loss = model.fit(samples, labels, batch_size=network.batch, shuffle=False, verbose=0).history["loss"][-1]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    found = {**parts.seconds(), "wall": wall, "CPU": cpu, "MB": peak_bytes() / 2**20, "loss": loss}
    return {**dict.fromkeys(COLUMNS, 0.0), **found}


def probed(name: str, backend: str, ours: bool, environment: dict[str, str]) -> dict[str, float]:
    """Runs `probe` in a process with such variables."""
    command = ["-m", "benchmarks.first_epoch", "--probe", "--networks", name, *(["--stock"] if not ours else [])]
    return answer(command, KERAS_BACKEND=backend, **environment)


def _caches(family: str, folder: str) -> dict[str, str]:
    """The variables with which programs are kept in a folder; none if they are not."""
    return {
        "again": {"IPU_TF_CACHE": "1", "XDG_CACHE_HOME": folder},
        "kept": {"TF_POPLAR_FLAGS": f"--executable_cache_path={folder}"},
    }.get(family, {})


def compare(name: str, rounds: int, whom: Sequence[str]) -> None:
    """Prints the table of a network: medians of the rounds."""
    found: dict[str, list[dict[str, float]]] = {who: [] for who in whom}
    for _ in range(rounds):
        for who in whom:
            family, backend = who.split("-")
            with tempfile.TemporaryDirectory() as folder:
                given = (name, {"tf": "tensorflow", "jax": "jax"}[backend], family != "stock")
                caches = _caches(family, folder)
                if caches:
                    probed(*given, caches)
                found[who].append(probed(*given, caches))
    print(f"\n{name:<14}" + "".join(f"{column:>10}" for column in COLUMNS))
    for who, each in found.items():
        medians = (statistics.median(one[column] for one in each) for column in COLUMNS)
        print(f"  {who:<12}" + "".join(f"{value:10.2f}" for value in medians), flush=True)


def main() -> None:
    """Runs the measurements selected on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_epoch", description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS), help="what is trained (all)")
    add("--whom", nargs="+", choices=WHO, default=list(WHO), help="ours, stock Keras, ours with kept executables (all)")
    add("--rounds", type=int, default=3, help="processes of each (%(default)s)")
    add("--probe", action="store_true", help=argparse.SUPPRESS)
    add("--stock", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.probe:
        print(json.dumps(probe(asked.networks[0], not asked.stock)))
        return
    for name in asked.networks:
        compare(name, asked.rounds, asked.whom)


if __name__ == "__main__":
    main()
