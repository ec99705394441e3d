"""Every family of layers trains on the device as on stock Keras: losses, metrics, weights and optimizer variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
from keras import layers

from tests.helpers.keras_parity import LOOSE, TIGHT, Program, integers, numbers, sgd

IMAGES = numbers(40, 6, 6, 4)
SERIES = numbers(40, 5, 3)
WORDS = integers(11, 40, 6)
TARGETS = numbers(40, 2, seed=2)
LABELS = integers(3, 40)


def stacked(shape: tuple[int, ...], *made: Callable[[], Any]) -> Callable[[], keras.Model]:
    """A builder of a Sequential of these layers, and a dense one of 2 units at the end."""
    return lambda: keras.Sequential([keras.Input(shape), *(make() for make in made), layers.Flatten(), layers.Dense(2)])


def image_program(name: str, *made: Callable[[], Any], rtol: float = LOOSE) -> Program:
    """A program with these layers on images of `[6, 6, 4]`."""
    return Program(name, stacked((6, 6, 4), *made), IMAGES, TARGETS, optimizer=lambda: sgd(0.005), rtol=rtol)


def series_program(name: str, *made: Callable[[], Any], rtol: float = LOOSE) -> Program:
    """A program with these layers on series of `[5, 3]`."""
    return Program(name, stacked((5, 3), *made), SERIES, TARGETS, rtol=rtol)


def transformer() -> keras.Model:
    """A block of attention and dense layers on words with learned positions."""
    words = keras.Input((6,), dtype="int32")
    x = layers.Embedding(11, 8)(words) + layers.Embedding(6, 8)(keras.ops.arange(6))
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, activation="gelu")(x)))
    return keras.Model(words, layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling1D()(x)))


def wide_transformer() -> keras.Model:
    """A block that is wide enough for the native kernels of attention, residual sums and layer normalisation."""
    tokens = keras.Input((64, 64))
    x = layers.LayerNormalization()(tokens + layers.MultiHeadAttention(2, 32)(tokens, tokens))
    x = layers.LayerNormalization()(x + layers.Dense(64)(layers.Dense(128, activation="relu")(x)))
    return keras.Model(tokens, layers.Dense(2)(layers.GlobalAveragePooling1D()(x)))


PROGRAMS = [
    Program(
        "dense",
        stacked((6, 6, 4), layers.Flatten, lambda: layers.Dense(8, "tanh"), lambda: layers.Dense(4, "relu")),
        IMAGES,
        TARGETS,
        rtol=TIGHT,
    ),
    image_program("conv_same", lambda: layers.Conv2D(3, 3, padding="same", activation="relu")),
    image_program("conv_valid_strided", lambda: layers.Conv2D(3, 3), lambda: layers.Conv2D(2, (2, 1), strides=2)),
    image_program("conv_dilated", lambda: layers.Conv2D(3, 2, dilation_rate=2)),
    image_program("conv_grouped", lambda: layers.Conv2D(4, 3, groups=2)),
    image_program("conv_depthwise", lambda: layers.DepthwiseConv2D(3, depth_multiplier=2)),
    image_program("conv_separable", lambda: layers.SeparableConv2D(3, 3, padding="same")),
    image_program("conv_transposed", lambda: layers.Conv2DTranspose(3, 3, strides=2, padding="same")),
    image_program("conv_channels_max_pool", lambda: layers.Conv2D(3, 3), lambda: layers.MaxPooling2D(2)),
    image_program("average_pool", lambda: layers.Conv2D(3, 1), lambda: layers.AveragePooling2D(3, 2, "same")),
    image_program("global_pools", lambda: layers.Conv2D(3, 1), layers.GlobalMaxPooling2D),
    image_program("upsampling", lambda: layers.Conv2D(2, 3), lambda: layers.UpSampling2D(2, interpolation="bilinear")),
    image_program("batch_norm", lambda: layers.Conv2D(3, 1, use_bias=False), layers.BatchNormalization),
    image_program("group_norm", lambda: layers.GroupNormalization(2), layers.LayerNormalization),
    series_program("conv_1d_causal", lambda: layers.Conv1D(4, 3, padding="causal", dilation_rate=2)),
    series_program("lstm", lambda: layers.LSTM(4, return_sequences=True)),
    series_program("gru", lambda: layers.GRU(4)),
    series_program("simple_rnn", lambda: layers.SimpleRNN(4, go_backwards=True)),
    series_program("bidirectional", lambda: layers.Bidirectional(layers.LSTM(3, unroll=True))),
    series_program("dropout", lambda: layers.Dropout(0.4), lambda: layers.SpatialDropout1D(0.3)),
    series_program("noise", lambda: layers.GaussianNoise(0.5), layers.PReLU),
    Program(
        "embedding_masked",
        stacked((6,), lambda: layers.Embedding(11, 4, mask_zero=True), lambda: layers.LSTM(4)),
        WORDS,
        TARGETS,
    ),
    Program(
        "conv_relu_max_pool",
        stacked(
            (16, 16, 8),
            lambda: layers.Conv2D(32, 3, activation="relu"),
            lambda: layers.MaxPooling2D(2),
            layers.GlobalAveragePooling2D,
        ),
        numbers(40, 16, 16, 8),
        TARGETS,
    ),
    Program("wide_transformer", wide_transformer, numbers(40, 64, 64), TARGETS),
    Program("transformer", transformer, WORDS, LABELS, "sparse_categorical_crossentropy", lambda: ["accuracy"]),
]


SLOW = {
    *("conv_same", "conv_dilated", "conv_grouped", "conv_separable", "average_pool", "global_pools"),
    *("group_norm", "conv_1d_causal", "gru", "simple_rnn", "noise"),
}
"""Programs of layers that `test_keras_tables.py` and `test_keras_stateless_layers.py` train for a step."""


@pytest.mark.parametrize(
    "program",
    [pytest.param(each, id=each.name, marks=pytest.mark.slow if each.name in SLOW else ()) for each in PROGRAMS],
)
def test_a_layer_trains_as_on_stock_keras(program: Program) -> None:
    program.check()
