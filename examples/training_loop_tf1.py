"""TensorFlow 1 training loop on the emulated IPU: `loops.repeat` with an infeed and an outfeed, in a session.

dataset ──► IPUInfeedQueue ──► loops.repeat on the device ──► IPUOutfeedQueue ──► session.run(dequeue)
"""

from __future__ import annotations

import os
from typing import Any

# TensorFlow reads this once, when it is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import ipu_tf as ipu

v1 = tf.compat.v1

CLASSES, FEATURES = 3, 8
BATCH, STEPS, EXECUTIONS = 32, 50, 5


def clouds() -> tf.data.Dataset:
    """Endless batches of (features float32 `[BATCH, FEATURES]`, class int32 `[BATCH]`): a cloud of points a class."""
    random = np.random.default_rng(0)
    centres = random.normal(0.0, 1.0, (CLASSES, FEATURES))
    labels = random.integers(0, CLASSES, 4096).astype(np.int32)
    features = (centres[labels] + random.normal(0.0, 0.8, (len(labels), FEATURES))).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat().batch(BATCH, drop_remainder=True)


class Training:
    """The program: `STEPS` steps of a v1 optimizer in a loop on the device."""

    def __init__(self) -> None:
        self.infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(clouds())
        self.outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def step(self, features: tf.Tensor, labels: tf.Tensor) -> list[Any]:
        """The loop's body: one batch from the infeed, one element (loss, accuracy) to the outfeed."""
        weights = v1.get_variable("weights", [FEATURES, CLASSES], initializer=v1.zeros_initializer())
        biases = v1.get_variable("biases", [CLASSES], initializer=v1.zeros_initializer())
        logits = tf.matmul(features, weights) + biases
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        right = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels)
        output = {"loss": loss, "accuracy": tf.reduce_mean(tf.cast(right, tf.float32))}
        update = v1.train.MomentumOptimizer(0.02, 0.9).minimize(loss)
        return [update, self.outfeed.enqueue(output)]

    def program(self) -> Any:
        """The loop: it carries no values, only operations."""
        return ipu.loops.repeat(STEPS, self.step, [], self.infeed)


def main() -> None:
    """Trains and prints the loss and the accuracy of each execution."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    with tf.Graph().as_default(), v1.Session() as session:
        training = Training()
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(training.program, inputs=[])
        elements = training.outfeed.dequeue()
        session.run([v1.global_variables_initializer(), training.infeed.initializer])
        print(f"{'steps':>6} {'first loss':>11} {'last loss':>10} {'mean accuracy':>14}")
        for execution in range(1, EXECUTIONS + 1):
            session.run(run)
            got = session.run(elements)
            loss, accuracy = got["loss"], got["accuracy"]
            print(f"{execution * STEPS:6d} {loss[0]:11.4f} {loss[-1]:10.4f} {accuracy.mean():14.1%}")


if __name__ == "__main__":
    main()
