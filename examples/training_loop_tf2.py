"""TensorFlow 2 training loop on the emulated IPU: fits a line to noisy points, a hundred steps an execution.

dataset ── next(iterator) ──► tf.range loop on the device ── enqueue ──► outfeed ── dequeue ──► this script
"""

from __future__ import annotations

import os
from collections.abc import Iterator

# TensorFlow reads this once, when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import ipu_tf as ipu

SLOPE, OFFSET = 3.0, -1.0
BATCH, STEPS, EXECUTIONS = 16, 100, 5


def points() -> tf.data.Dataset:
    """Endless batches of (x, y), float32 `[BATCH]` each, on a line but for a little noise."""
    random = np.random.default_rng(0)
    x = random.uniform(-1.0, 1.0, 4096).astype(np.float32)
    y = (SLOPE * x + OFFSET + random.normal(0.0, 0.1, x.shape)).astype(np.float32)
    # Fixed shapes are what the device needs: no batch that is not full.
    return tf.data.Dataset.from_tensor_slices((x, y)).repeat().batch(BATCH, drop_remainder=True)


class Line(tf.Module):
    """Linear model: `slope * x + offset`."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = tf.Variable(0.0)
        self.offset = tf.Variable(0.0)

    def loss(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        """The mean squared error."""
        return tf.reduce_mean(tf.square(self.slope * x + self.offset - y))


def main() -> None:
    """Fits the line and prints the loss after each execution."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    losses = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with strategy.scope():
        line = Line()
        iterator = iter(points())

    @tf.function
    def train(iterator: Iterator[tuple[tf.Tensor, tf.Tensor]], rate: tf.Tensor) -> None:
        """One execution: the device runs all of it before this script goes on."""
        for _ in tf.range(STEPS):
            x, y = next(iterator)
            with tf.GradientTape() as tape:
                loss = line.loss(x, y)
            for variable, gradient in zip(
                line.trainable_variables, tape.gradient(loss, line.trainable_variables), strict=True
            ):
                variable.assign_sub(rate * gradient)
            losses.enqueue(loss)

    print(f"{'steps':>6} {'first loss':>11} {'last loss':>10} {'slope':>7} {'offset':>7}")
    for execution in range(1, EXECUTIONS + 1):
        strategy.run(train, args=[iterator, tf.constant(0.02)])
        # One element for each step of this execution.
        losses_seen = losses.dequeue().numpy()
        slope, offset = float(line.slope), float(line.offset)
        print(f"{execution * STEPS:6d} {losses_seen[0]:11.4f} {losses_seen[-1]:10.4f} {slope:7.3f} {offset:7.3f}")
    print(f"the line the points were made from: slope {SLOPE}, offset {OFFSET}")


if __name__ == "__main__":
    main()
