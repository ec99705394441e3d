"""Transfer learning: the lower blocks of keras.applications' VGG16, frozen, with a new head, on handwritten digits.

The network's weights are random unless `--weights imagenet` fetches trained ones: even random convolutions, frozen,
make features from which a head learns most of the digits.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow reads this once, when it is imported

import keras
import numpy as np
from sklearn.datasets import load_digits

import ipu_tf as ipu

BATCH = 32
SIZE = 32


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images float32 `[1792, 32, 32, 3]` from -1 to 1, and labels int32 `[1792]`."""
    data = load_digits()
    images = np.kron(data.images, np.ones((4, 4)))[..., None].repeat(3, axis=-1)
    count = len(images) // BATCH * BATCH
    return (images[:count] / 8.0 - 1.0).astype(np.float32), data.target[:count].astype(np.int32)


def make_model(weights: str | None) -> tuple[keras.Model, keras.Model]:
    """Returns the frozen body, VGG16 up to the end of its third block, and a head for its features."""
    keras.utils.set_random_seed(1)
    whole = keras.applications.VGG16(include_top=False, weights=weights, input_shape=(SIZE, SIZE, 3))
    features = keras.layers.Flatten()(whole.get_layer("block3_pool").output)
    body = keras.Model(whole.inputs, features)
    body.trainable = False
    body.compile(steps_per_execution=14)
    layers = [keras.layers.BatchNormalization(), keras.layers.Dense(10)]
    head = keras.Sequential([keras.Input((features.shape[-1],)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    head.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], steps_per_execution=7)
    return body, head


def main() -> None:
    """Computes features once, and trains the head on them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", choices=["imagenet"], help="weights to fetch; random ones by default")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the features (%(default)s)")
    options = parser.parse_args()
    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    images, labels = digits()
    with ipu.ipu_strategy.IPUStrategy().scope():
        body, head = make_model(options.weights)
        features = body.predict(images, batch_size=BATCH, verbose=0)
        train, test = slice(0, 42 * BATCH), slice(42 * BATCH, None)
        head.fit(features[train], labels[train], batch_size=BATCH, epochs=options.epochs, verbose=0)
        _, accuracy = head.evaluate(features[test], labels[test], batch_size=BATCH, verbose=0)
    frozen, learned = body.count_params(), sum(int(np.prod(each.shape)) for each in head.trainable_weights)
    print(
        f"{frozen:,} frozen weights make {features.shape[1]} features of an image; {learned:,} weights learn from them"
    )
    print(f"accuracy on {len(labels[test])} images that the head has not seen: {accuracy:.1%} (10% by chance)")


if __name__ == "__main__":
    main()
