"""Trains models that differ in one thing each, with one folder of executables: `python -m tests.helpers.kept_fits`.

Prints a line for each: its name, the weights and losses as a hash, how many functions were traced and how many
executables loaded.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

import ipu_tf as ipu
from ipu_tf.device.cache.executable_cache import CachedFunction
from ipu_tf.device.run.compiled_parts import CompiledParts
from ipu_tf.emulation import device_counts
from tests.helpers.keras_parity import integers, numbers

BASE: dict[str, Any] = {
    "activation": "relu",
    "regularizer": 0.01,
    "dropout": 0.5,
    "epsilon": 1e-3,
    "optimizer": lambda: keras.optimizers.Adam(0.01),
    "loss": lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "batch": 4,
    "steps": 2,
    "replicas": 1,
    "accumulation": 1,
    "policy": "float32",
}
CHANGES: dict[str, dict[str, Any]] = {
    "base": {},
    "activation": {"activation": "tanh"},
    "regularizer": {"regularizer": 0.02},
    "dropout": {"dropout": 0.25},
    "epsilon": {"epsilon": 2e-3},
    "learning rate": {"optimizer": lambda: keras.optimizers.Adam(0.02)},
    "momentum": {"optimizer": lambda: keras.optimizers.SGD(0.01, momentum=0.9)},
    "less momentum": {"optimizer": lambda: keras.optimizers.SGD(0.01, momentum=0.8)},
    "batch": {"batch": 8},
    "steps": {"steps": 4},
    "replicas": {"replicas": 2},
    "accumulation": {"accumulation": 2},
    "policy": {"policy": "mixed_bfloat16"},
}


def fitted(changes: dict[str, Any]) -> str:
    """Returns a hash of what training a model and predicting with it gives."""
    options = {**BASE, **changes}
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = options["replicas"]
    config.configure_ipu_system()
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(options["policy"])
    x, y = numbers(32, 6, 6, 2), integers(5, 32)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = _model(options)
        if options["accumulation"] > 1:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=options["accumulation"])
        model.compile(options["optimizer"](), options["loss"](), steps_per_execution=options["steps"])
        losses = model.fit(x, y, options["batch"], epochs=2, shuffle=False, verbose=0).history["loss"]
        arrays = [*model.get_weights(), np.array(losses), model.predict(x, 8, verbose=0)]
    return hashlib.sha256(b"".join(np.asarray(each, np.float64).tobytes() for each in arrays)).hexdigest()


def _model(options: dict[str, Any]) -> keras.Model:
    convolution = layers.Conv2D(
        4, 3, activation=options["activation"], kernel_regularizer=keras.regularizers.L2(options["regularizer"])
    )
    parts = [convolution, layers.BatchNormalization(epsilon=options["epsilon"]), layers.Flatten()]
    return keras.Sequential([keras.Input((6, 6, 2)), *parts, layers.Dropout(options["dropout"]), layers.Dense(5)])


def main() -> None:
    """Trains the models in the order that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.helpers.kept_fits", description=__doc__)
    parser.add_argument("--backwards", action="store_true", help="the last first")
    parser.add_argument("--traced", action="store_true", help="trace each program, whatever is in the folder")
    parser.add_argument("--only", nargs="+", choices=CHANGES, default=[*CHANGES], help="what is trained (all)")
    asked = parser.parse_args()
    traces: list[int] = []
    trace: Callable[..., Any] = CachedFunction._lowered

    def counted(*arguments: Any) -> Any:
        traces.append(1)
        return trace(*arguments)

    patches: list[tuple[Any, str, Callable[..., Any]]] = [(CachedFunction, "_lowered", counted)]
    if asked.traced:
        patches.append((CompiledParts, "_source", lambda self, key: ""))
    for patch in patches:
        setattr(*patch)
    for name in asked.only[:: -1 if asked.backwards else 1]:
        before, loads = len(traces), device_counts().loads
        found = fitted(CHANGES[name])
        print(f"FIT {name}: {found} {len(traces) - before} {device_counts().loads - loads}")


if __name__ == "__main__":
    main()
