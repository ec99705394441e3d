"""Trains one model in several step splits: micro-batches, replicas and pipeline stages.

However a weight update is split, it has to be the same update. The same network learns the same handwritten digits once
with stock Keras, one big batch an update, and then in splits of it on the emulated IPU; the table shows how far the
weights are apart after the last update.
"""

from __future__ import annotations

import argparse
import dataclasses
import os

# TensorFlow reads this once, when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from sklearn.datasets import load_digits

import ipu_tf as ipu

SAMPLES_AN_UPDATE = 64
UPDATES = 24


@dataclasses.dataclass(frozen=True)
class Split:
    """Step split of a weight update of `SAMPLES_AN_UPDATE` samples."""

    replicas: int
    micro_batches: int
    stages: int

    @property
    def batch(self) -> int:
        """Samples that one replica sees at a time."""
        return SAMPLES_AN_UPDATE // (self.replicas * self.micro_batches)


SPLITS = [Split(1, 1, 1), Split(1, 8, 1), Split(4, 1, 1), Split(2, 4, 1), Split(1, 8, 4), Split(2, 4, 2)]


def network() -> keras.Sequential:
    """Four dense layers, the same at every call."""
    keras.utils.set_random_seed(0)
    sizes = [(64, "tanh"), (64, "tanh"), (32, "tanh"), (10, "softmax")]
    return keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(n, activation=a) for n, a in sizes)])


def digits(updates: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the samples of a number of weight updates."""
    x, y = load_digits(return_X_y=True)
    count = updates * SAMPLES_AN_UPDATE
    return np.resize(x / 16.0, (count, 64)).astype(np.float32), np.resize(y, count).astype(np.int32)


def adam() -> keras.optimizers.Optimizer:
    """Clips the gradient of the whole update: a split that clipped its parts would show."""
    return keras.optimizers.Adam(0.01, global_clipnorm=0.5)


def stock(updates: int) -> keras.Sequential:
    """Trains the network by stock Keras on the CPU."""
    model, (x, y) = network(), digits(updates)
    model.compile(adam(), "sparse_categorical_crossentropy")
    model.fit(x, y, SAMPLES_AN_UPDATE, shuffle=False, verbose=0)
    return model


def on_ipus(split: Split, updates: int) -> keras.Sequential:
    """Trains the network in each step split on the emulated IPU."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = split.replicas * split.stages
    cfg.configure_ipu_system()
    x, y = digits(updates)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = network()
        # Gradients of replicas are summed: the mean over them is what one big batch gives.
        loss = keras.losses.SparseCategoricalCrossentropy()
        scaled = loss if split.replicas == 1 else (lambda y, p: loss(y, p) / split.replicas)
        accumulation = {
            "gradient_accumulation_steps_per_replica": split.micro_batches,
            "gradient_accumulation_reduction_method": "mean",
        }
        if split.stages > 1:
            model.set_pipeline_stage_assignment([i * split.stages // 4 for i in range(4)])
            model.set_pipelining_options(**accumulation)
        elif split.micro_batches > 1:
            model.set_gradient_accumulation_options(**accumulation)
        model.compile(adam(), scaled, steps_per_execution=updates * split.micro_batches)
        model.fit(x, y, split.batch, shuffle=False, verbose=0)
    return model


def main() -> None:
    """Trains in every step split and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=UPDATES, help="weight updates to make (default: %(default)s)")
    updates = parser.parse_args().updates
    wanted = stock(updates).get_weights()
    rows = []
    for split in SPLITS:
        weights = on_ipus(split, updates).get_weights()
        apart = max(float(np.abs(a - b).max()) for a, b in zip(weights, wanted, strict=True))
        rows.append(f"{split.replicas:>8} {split.micro_batches:>13} {split.stages:>6} {split.batch:>5}   {apart:.1e}")
    print(f"\n{updates} updates of {SAMPLES_AN_UPDATE} samples; weights compared with stock Keras's\n")
    print(f"{'replicas':>8} {'micro-batches':>13} {'stages':>6} {'batch':>5}   largest difference")
    print("\n".join(rows))
    print("\nfloat32 rounds at 6e-08 of a number; sums in another order differ by a few of these.")


if __name__ == "__main__":
    main()
