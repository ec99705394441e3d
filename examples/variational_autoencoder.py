"""A variational autoencoder with its own `train_step`: learns handwritten digits, and draws new ones as text."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads this once, when it is imported

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import ipu_tf as ipu

LATENT, BATCH, STEPS = 8, 64, 28
SHADES = " .:-=+*#%@"


class Autoencoder(keras.Model):
    """Encodes an image as a normal distribution over `LATENT` numbers, and decodes a draw from it."""

    def __init__(self) -> None:
        """Makes the two networks."""
        super().__init__()
        dense = keras.layers.Dense
        self.encoder = keras.Sequential([keras.Input((64,)), dense(128, activation="relu"), dense(2 * LATENT)])
        self.decoder = keras.Sequential([keras.Input((LATENT,)), dense(128, activation="relu"), dense(64)])
        self.build((BATCH, 64))

    def call(self, images: tf.Tensor) -> tf.Tensor:
        """The decoded means."""
        return tf.sigmoid(self.decoder(self.encoder(images)[:, :LATENT]))

    def train_step(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """One step: the error of the decoded image, and how far the codes are from a standard normal distribution."""
        with tf.GradientTape() as tape:
            mean, log_variance = tf.split(self.encoder(images), 2, axis=1)
            code = mean + tf.exp(log_variance / 2) * tf.random.normal(tf.shape(mean))
            errors = tf.nn.sigmoid_cross_entropy_with_logits(images, self.decoder(code))
            error = tf.reduce_mean(tf.reduce_sum(errors, axis=1))
            distance = tf.exp(log_variance) + mean**2 - 1.0 - log_variance
            divergence = tf.reduce_mean(tf.reduce_sum(distance, axis=1)) / 2
            loss = error + divergence
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_weights), self.trainable_weights, strict=True)
        )
        return {"loss": loss, "error": error, "divergence": divergence}


def drawn(images: np.ndarray) -> str:
    """Images `[count, 64]` side by side, as letters."""
    rows = np.concatenate(list(images.reshape(-1, 8, 8)), axis=1)
    shades = np.clip((rows * len(SHADES)).astype(int), 0, len(SHADES) - 1)
    return "\n".join("".join(SHADES[shade] * 2 for shade in row).rstrip() for row in shades)


def main() -> None:
    """Trains, and draws digits that are in no data set."""
    images = (load_digits().data[: BATCH * STEPS] / 16.0).astype(np.float32)
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    keras.utils.set_random_seed(3)
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = Autoencoder()
        model.compile(keras.optimizers.Adam(0.003), steps_per_execution=STEPS)
        history = model.fit(images, batch_size=BATCH, epochs=40, verbose=0).history
        codes = np.random.default_rng(3).normal(size=(6, LATENT)).astype(np.float32)
        new = keras.ops.sigmoid(model.decoder.predict(codes, batch_size=6, verbose=0))
    for epoch in (0, 9, 39):
        loss, divergence = history["loss"][epoch], history["divergence"][epoch]
        print(f"epoch {epoch + 1:2d}: loss {loss:.2f}, of it divergence {divergence:.2f}")
    print("\nsix digits that nobody wrote:\n" + drawn(np.asarray(new)))


if __name__ == "__main__":
    main()
