"""A training loop of one's own: an infeed, a loop on the device, an outfeed, and a Keras optimizer inside."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads this once, when it is imported

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import ipu_tf as ipu

BATCH, STEPS, EPOCHS = 32, 56, 6


def main() -> None:
    """Trains a classifier; the host hears of it once an epoch."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    data = load_digits()
    images, labels = (data.data / 16.0).astype(np.float32), data.target.astype(np.int32)
    batches = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(2000, seed=1).repeat()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(batches.batch(BATCH, drop_remainder=True))
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    keras.utils.set_random_seed(1)
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(10)]
        )
        optimizer = keras.optimizers.Adam(0.005)
        optimizer.build(model.trainable_variables)

    def step(x: tf.Tensor, y: tf.Tensor) -> tf.Operation:
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        right = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, tf.int32), y), tf.float32))
        return outfeed.enqueue({"loss": loss, "accuracy": right})

    @tf.function
    def epoch() -> None:
        ipu.loops.repeat(STEPS, step, [], infeed)

    print("epoch  loss of the first and the last step   accuracy")
    for number in range(1, EPOCHS + 1):
        strategy.run(epoch)
        steps = outfeed.dequeue()  # what every step put there, stacked
        loss, accuracy = steps["loss"].numpy(), float(np.mean(steps["accuracy"][-10:]))
        print(f"{number:5d}  {loss[0]:8.4f} {loss[-1]:8.4f} {accuracy:27.1%}")


if __name__ == "__main__":
    main()
