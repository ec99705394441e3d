"""What data of any size costs: `python -m benchmarks.partial_batches`, with KERAS_BACKEND for the back end.

First full batches: the time of `fit` on them, as a ratio to that with Graphcore's rules, which know no others.
Both take turns in one process. Then `predict(x[:n])` for each n up to a batch: seconds of all calls, here and in stock
Keras, and the programs that were compiled for them.
"""

from __future__ import annotations

import statistics
import time

import keras
import numpy as np

import ipu_tf as ipu

TURNS, WARM_UP, BATCH = 24, 4, 32


def configured(graphcore_rules: bool) -> ipu.ipu_strategy.IPUStrategyV1:
    """Configures one IPU; returns a strategy for it."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.graphcore_rules = graphcore_rules
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


def network() -> keras.Model:
    """Returns a small dense network, compiled."""
    hidden = keras.layers.Dense(128, "relu")
    model = keras.Sequential([keras.Input((64,)), hidden, keras.layers.Dense(1)])
    model.compile("adam", "mse", steps_per_execution=16)
    return model


def ratio_of_full_batches(x: np.ndarray) -> float:
    """Returns the time of epochs of full batches in proportion to that by Graphcore's rules: the median of pairs."""
    models, ratios = {}, []
    for rules in (True, False):
        with configured(rules).scope():
            models[rules] = network()
    for turn in range(TURNS):
        times = {}
        for rules in (True, False) if turn % 2 else (False, True):
            configured(rules)
            began = time.perf_counter()
            models[rules].fit(x, x[:, :1], batch_size=BATCH, epochs=3, verbose=0)
            times[rules] = time.perf_counter() - began
        ratios.append(times[False] / times[True])
    return statistics.median(ratios[WARM_UP:])


def seconds_to_predict(model: keras.Model, x: np.ndarray) -> float:
    """Returns the seconds of one prediction of each size up to a batch."""
    began = time.perf_counter()
    for samples in range(1, BATCH + 1):
        model.predict(x[:samples], batch_size=BATCH, verbose=0)
    return time.perf_counter() - began


def main() -> None:
    """Prints both."""
    x = np.random.default_rng(0).normal(size=(64 * BATCH, 64)).astype(np.float32)
    print(f"full batches, in proportion to Graphcore's rules: {ratio_of_full_batches(x):.2f}")
    stock = seconds_to_predict(network(), x)
    with configured(False).scope():
        model = network()
    before = ipu.emulation.device_counts().programs
    ours = seconds_to_predict(model, x)
    programs = ipu.emulation.device_counts().programs - before
    print(f"predict(x[:n]), n = 1 ... {BATCH}: stock {stock:.1f} s, here {ours:.1f} s with {programs} programs")


if __name__ == "__main__":
    main()
