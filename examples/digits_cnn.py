"""Trains a small Keras CNN on handwritten digits on the emulated IPU: `make demo`.

The images are scikit-learn's 1797 scans of handwritten digits, 8 x 8 pixels each, which ship in that package.
The three lines that put a Keras script on the device are marked below. At the end the same network is trained by
stock Keras too, and the time per step of both is printed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import time

# TensorFlow reads this once, when it is imported: only the progress bar is wanted. What TensorFlow logs during its
# import has no switch.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import ipu_tf as ipu

SEED = 1
ROUNDS = 5
#: 44 batches of 32 to train with, and as many of 8 to test with: one execution has the same number of steps in both.
TRAIN_IMAGES, TEST_IMAGES = 1408, 352


@dataclasses.dataclass(frozen=True)
class Digits:
    """Images and labels of the training and test sets.

    Attributes:
        train: shuffled batches of (images float32 `[batch, 8, 8, 1]` from 0 to 1, labels int32 `[batch]`).
        test_images: float32 `[352, 8, 8, 1]`.
        test_labels: int32 `[352]`.
    """

    train: tf.data.Dataset
    test_images: np.ndarray
    test_labels: np.ndarray

    @property
    def steps(self) -> int:
        """Batches in an epoch."""
        return int(self.train.cardinality())


def read_digits(batch_size: int) -> Digits:
    """Reads the images, with the same train and test split every time."""
    digits = load_digits()
    images = (digits.images[..., None] / 16.0).astype(np.float32)
    labels = digits.target.astype(np.int32)
    x, x_test, y, y_test = train_test_split(
        images, labels, train_size=TRAIN_IMAGES, test_size=TEST_IMAGES, random_state=SEED, stratify=labels
    )
    train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=SEED)
    # A last batch that is not full would be a program of its own: it is dropped.
    return Digits(train.batch(batch_size, drop_remainder=True), x_test, y_test)


def make_model(steps_per_execution: int) -> tf.keras.Model:
    """The network: two convolutions and a dense layer, compiled. Its weights start the same every time."""
    tf.keras.utils.set_random_seed(SEED)
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1)),
            layers.Conv2D(8, 3, padding="same", activation="relu"),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.25),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.002),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
    )
    return model


def train_on_device(digits: Digits, epochs: int, steps_per_execution: int) -> tf.keras.Model:
    """Trains and tests on the device, and prints loss and accuracy."""
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()  # the first two of the three lines: one emulated IPU
    with ipu.ipu_strategy.IPUStrategy().scope():  # the third
        model = make_model(steps_per_execution)
        model.fit(digits.train, epochs=epochs, shuffle=False)  # `train` shuffles itself
        # One execution, and no image is dropped: batches as many as an execution has steps, or all images as one batch.
        batch_size = TEST_IMAGES if TEST_IMAGES % steps_per_execution else TEST_IMAGES // steps_per_execution
        _, accuracy = model.evaluate(digits.test_images, digits.test_labels, batch_size=batch_size, verbose=0)
    counts = ipu.emulation.device_counts()
    print(f"\ntest accuracy: {accuracy:.1%} of {len(digits.test_labels)} images the network has not seen")
    print(
        f"the device ran: {counts.programs + counts.loads} programs (one to train, one to test), "
        f"{counts.executions} executions, {counts.steps} steps"
    )
    return model


def milliseconds_per_step(models: dict[str, tf.keras.Model], digits: Digits) -> dict[str, float]:
    """Times models by turns: the median over rounds of an epoch each, after one that is not timed."""
    for model in models.values():
        model.fit(digits.train, epochs=1, shuffle=False, verbose=0)
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            start = time.perf_counter()
            model.fit(digits.train, epochs=1, shuffle=False, verbose=0)
            times[name].append((time.perf_counter() - start) * 1e3 / digits.steps)
    return {name: statistics.median(values) for name, values in times.items()}


def compare(on_device: tf.keras.Model, digits: Digits, steps_per_execution: int) -> None:
    """Prints the time per step with and without the three lines, with stock Keras at its better setting."""
    ours = f"with the three lines,         steps_per_execution={steps_per_execution}"
    models = {ours: on_device}
    for steps in sorted({1, steps_per_execution}):
        models[f"without them (stock Keras),   steps_per_execution={steps}"] = make_model(steps)
    times = milliseconds_per_step(models, digits)
    print(f"\ntime per training step (median of {ROUNDS} epochs each in turns, compilation left out):")
    for name, milliseconds in times.items():
        print(f"  {name:<54} {milliseconds:7.3f} ms")
    ratio = min(time for name, time in times.items() if name != ours) / times[ours]
    verdict = f"{ratio:.1f} times faster" if ratio >= 1 else f"{1 / ratio:.1f} times slower"
    print(f"  with the three lines: {verdict} than the better of stock Keras, on this machine's processor")


def main() -> None:
    """Parses the command line, trains and compares."""
    parser = argparse.ArgumentParser(
        description="Trains a small convolutional network on handwritten digits, on the emulated IPU."
    )
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training images (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="images in a training step (%(default)s)")
    parser.add_argument(
        "--steps-per-execution",
        type=int,
        help="training steps the device runs before Python hears of it; under the launcher it must divide the steps of "
        "an epoch (all steps of an epoch)",
    )
    parser.add_argument("--no-comparison", action="store_true", help="leave out the time with stock Keras")
    options = parser.parse_args()
    if not 1 <= options.batch_size <= TRAIN_IMAGES:
        parser.error(
            f"--batch-size: wanted 1 to {TRAIN_IMAGES}, the number of training images; received {options.batch_size}"
        )
    digits = read_digits(options.batch_size)
    steps_per_execution = options.steps_per_execution or digits.steps
    model = train_on_device(digits, options.epochs, steps_per_execution)
    if not options.no_comparison:
        compare(model, digits, steps_per_execution)


if __name__ == "__main__":
    main()
