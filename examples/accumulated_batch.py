"""A batch that does not fit: 512 samples to an update, 32 of them at a time, with the weights of the whole batch."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads this once, when it is imported

import keras
import numpy as np
from sklearn.datasets import load_digits

import ipu_tf as ipu

WHOLE, PART, UPDATES = 512, 32, 12


def trained(model: keras.Model, batch_size: int, steps: int) -> np.ndarray:
    """Trains for `UPDATES` updates; returns all weights as one array."""
    data = load_digits()
    x, y = (data.data[: 3 * WHOLE] / 16.0).astype(np.float32), data.target[: 3 * WHOLE].astype(np.int32)
    model.compile(
        keras.optimizers.SGD(0.2, momentum=0.9, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=steps,
    )
    model.fit(x, y, batch_size=batch_size, epochs=UPDATES // 3, shuffle=False, verbose=0)
    return np.concatenate([np.ravel(each) for each in model.get_weights()])


def make_model() -> keras.Model:
    """The network, with the same weights every time."""
    keras.utils.set_random_seed(1)
    dense = keras.layers.Dense
    return keras.Sequential(
        [keras.Input((64,)), dense(256, activation="relu"), dense(256, activation="relu"), dense(10)]
    )


def main() -> None:
    """Trains in parts on the device and in whole batches by stock Keras, and compares."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model = make_model()
        model.set_gradient_accumulation_options(
            gradient_accumulation_steps_per_replica=WHOLE // PART, gradient_accumulation_reduction_method="mean"
        )
        in_parts = trained(model, PART, 3 * WHOLE // PART)
    whole = trained(make_model(), WHOLE, 1)
    activations = 4 * (64 + 256 + 256 + 10)
    print(f"{UPDATES} updates of {WHOLE} samples; activations of a step: {activations * WHOLE:,} bytes in one piece,")
    print(f"{activations * PART:,} bytes in {WHOLE // PART} parts")
    print(f"largest difference of a weight: {np.abs(in_parts - whole).max():.1e}")
    print("clipping and momentum saw the whole gradient, once an update")


if __name__ == "__main__":
    main()
