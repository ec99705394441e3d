"""Benchmark networks in Keras: each maps the input tensor to probabilities of ten classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import layers, ops

from benchmarks.workload import CLASSES, MOBILENET_BLOCKS, Workload


def model_of(workload: Workload) -> Any:
    """The network of a workload, not compiled."""
    keras.utils.set_random_seed(0)
    samples = keras.Input(workload.shape, dtype="int32" if workload.vocabulary else "float32")
    return keras.Model(
        samples,
        layers.Dense(CLASSES, activation="softmax")(NETWORKS.get(workload.model, application)(samples, workload)),
    )


def optimizer_of(workload: Workload) -> Any:
    """The workload's optimizer."""
    return keras.optimizers.Adam() if workload.optimizer == "adam" else keras.optimizers.SGD(learning_rate=0.016)


def small(x: Any, workload: Workload) -> Any:
    """One hidden layer of 64."""
    return layers.Dense(64, activation="relu")(x)


def dense(x: Any, workload: Workload) -> Any:
    """One hidden layer of 128."""
    return layers.Dense(128, activation="relu")(x)


def cnn(x: Any, workload: Workload) -> Any:
    """The reference CNN for CIFAR-10."""
    for inner, outer in ((32, 32), (64, 32)):
        x = layers.Activation("relu")(layers.Conv2D(inner, (3, 3), padding="same")(x))
        x = layers.Activation("relu")(layers.Conv2D(outer, (3, 3))(x))
        x = layers.Dropout(0.25)(layers.MaxPooling2D(pool_size=(2, 2))(x))
    x = layers.Activation("relu")(layers.Dense(512)(layers.Flatten()(x)))
    return layers.Dropout(0.5)(x)


def resnet(x: Any, workload: Workload) -> Any:
    """ResNet-20: three blocks each of 16, 32 and 64 channels, shortcuts by 1x1 where the width changes."""
    x = layers.ReLU()(_normalised(layers.Conv2D(16, 3, padding="same", use_bias=False)(x)))
    for width in (16, 32, 64):
        for block in range(3):
            stride = 2 if width > 16 and block == 0 else 1
            y = _normalised(layers.Conv2D(width, 3, stride, padding="same", use_bias=False)(x))
            y = _normalised(layers.Conv2D(width, 3, padding="same", use_bias=False)(layers.ReLU()(y)))
            if stride == 2:
                x = layers.Conv2D(width, 1, stride, use_bias=False)(x)
            x = layers.ReLU()(x + y)
    return layers.GlobalAveragePooling2D()(x)


def mobilenet(x: Any, workload: Workload) -> Any:
    """Alternating depthwise 3x3 and pointwise convolutions, as in MobileNet."""
    x = layers.ReLU()(_normalised(layers.Conv2D(32, 3, padding="same", use_bias=False)(x)))
    for width, stride in MOBILENET_BLOCKS:
        x = layers.ReLU()(_normalised(layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)))
        x = layers.ReLU()(_normalised(layers.Conv2D(width, 1, use_bias=False)(x)))
    return layers.GlobalAveragePooling2D()(x)


def lstm(x: Any, workload: Workload) -> Any:
    """An embedding of 64 and an LSTM of 64; its last output."""
    return layers.LSTM(64)(layers.Embedding(workload.vocabulary, 64)(x))


def transformer(x: Any, workload: Workload, depth: int = 4) -> Any:
    """Encoder layers of width 256 with four heads, normalised before each part; the mean over the tokens."""
    positions = layers.Embedding(workload.shape[0], 256)(ops.arange(workload.shape[0]))
    x = layers.Embedding(workload.vocabulary, 256)(x) + positions
    for _ in range(depth):
        y = layers.LayerNormalization()(x)
        x = x + layers.MultiHeadAttention(4, 64)(y, y)
        y = layers.LayerNormalization()(x)
        x = x + layers.Dense(256)(layers.Dense(1024, activation="relu")(y))
    return layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))


def application(x: Any, workload: Workload) -> Any:
    """A network of `keras.applications` without its last layer."""
    make = getattr(keras.applications, workload.model)
    return make(include_top=False, weights=None, input_tensor=x, pooling="avg").output


def _normalised(x: Any) -> Any:
    return layers.BatchNormalization()(x)


NETWORKS: dict[str, Callable[[Any, Workload], Any]] = {
    network.__name__: network for network in (small, dense, cnn, resnet, mobilenet, lstm, transformer)
}
