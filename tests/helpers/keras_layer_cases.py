"""Table of Keras's layers that have weights or state, and why the others have none."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

from tests.helpers.keras_parity import integers, numbers

BATCH = 4

INPUTS: dict[str, np.ndarray] = {
    "vectors": numbers(BATCH, 6),
    "words": integers(7, BATCH, 5),
    "series": numbers(BATCH, 6, 4),
    "recurrent": numbers(BATCH, 5, 3),
    "images": numbers(BATCH, 6, 6, 4),
    "volumes": numbers(BATCH, 4, 4, 4, 2),
    "lines": numbers(BATCH, 3, 5, 2),
    "videos": numbers(BATCH, 3, 4, 4, 2),
    "volume_videos": numbers(BATCH, 2, 3, 3, 3, 1),
    "random": numbers(BATCH, 6, 4),
    "random_images": numbers(BATCH, 6, 6, 3),
    "random_volumes": numbers(BATCH, 3, 3, 3, 2),
    "augmented": np.abs(numbers(BATCH, 8, 8, 3)) * 60,
    "waves": numbers(BATCH, 64),
}
"""Inputs of the layers of a group. The layers of one group train side by side in one model."""

DRAWS = ("random", "random_images", "random_volumes", "augmented")
"""Groups whose layers draw random numbers."""


@dataclasses.dataclass(frozen=True)
class LayerCase:
    """One layer.

    Attributes:
        name: of the test, and of the model's output.
        group: which input it takes.
        make: makes it.
        covers: names of other public layers that it is made of.
        call: calls it.
    """

    name: str
    group: str
    make: Callable[[], keras.layers.Layer]
    covers: tuple[str, ...] = ()
    call: Callable[[Any, Any], Any] = lambda layer, x: layer(x)


def _adapted() -> keras.layers.Layer:
    layer = layers.Normalization()
    layer.adapt(INPUTS["vectors"])
    return layer


def _twice(layer: Any, x: Any) -> Any:
    return layer(x, x)


def _in_a_list(layer: Any, x: Any) -> Any:
    return layer([x, x[:, :3]])


CASES = [
    LayerCase("Dense", "vectors", lambda: layers.Dense(3, "tanh")),
    LayerCase("EinsumDense", "vectors", lambda: layers.EinsumDense("ab,bc->ac", 3, bias_axes="c")),
    LayerCase("PReLU", "vectors", layers.PReLU),
    LayerCase("Normalization", "vectors", _adapted),
    LayerCase("SpectralNormalization", "vectors", lambda: layers.SpectralNormalization(layers.Dense(3))),
    LayerCase("Embedding", "words", lambda: layers.Embedding(7, 3)),
    LayerCase(
        "ReversibleEmbedding",
        "words",
        lambda: layers.ReversibleEmbedding(7, 3),
        call=lambda layer, x: layer(layer(x), reverse=True),
    ),
    LayerCase("Conv1D", "series", lambda: layers.Conv1D(3, 3, padding="causal")),
    LayerCase("Conv1DTranspose", "series", lambda: layers.Conv1DTranspose(3, 3, strides=2)),
    LayerCase("DepthwiseConv1D", "series", lambda: layers.DepthwiseConv1D(3, depth_multiplier=2)),
    LayerCase("SeparableConv1D", "series", lambda: layers.SeparableConv1D(3, 3)),
    LayerCase("LayerNormalization", "series", layers.LayerNormalization),
    LayerCase("RMSNormalization", "series", layers.RMSNormalization),
    LayerCase("TimeDistributed", "series", lambda: layers.TimeDistributed(layers.Dense(3))),
    LayerCase("Attention", "series", lambda: layers.Attention(use_scale=True), call=_in_a_list),
    LayerCase("AdditiveAttention", "series", layers.AdditiveAttention, call=_in_a_list),
    LayerCase("MultiHeadAttention", "series", lambda: layers.MultiHeadAttention(2, 3), call=_twice),
    LayerCase("GroupedQueryAttention", "series", lambda: layers.GroupQueryAttention(3, 4, 2), call=_twice),
    LayerCase("SimpleRNN", "recurrent", lambda: layers.SimpleRNN(3)),
    LayerCase("LSTM", "recurrent", lambda: layers.LSTM(3, stateful=True)),
    LayerCase("GRU", "recurrent", lambda: layers.GRU(3, return_sequences=True)),
    LayerCase("Bidirectional", "recurrent", lambda: layers.Bidirectional(layers.GRU(2))),
    LayerCase(
        "RNN",
        "recurrent",
        lambda: layers.RNN([layers.SimpleRNNCell(3), layers.LSTMCell(2), layers.GRUCell(3)]),
        covers=("SimpleRNNCell", "LSTMCell", "GRUCell", "StackedRNNCells"),
    ),
    LayerCase("Conv2D", "images", lambda: layers.Conv2D(3, 3)),
    LayerCase("Conv2DTranspose", "images", lambda: layers.Conv2DTranspose(3, 3, strides=2, padding="same")),
    LayerCase("DepthwiseConv2D", "images", lambda: layers.DepthwiseConv2D(3)),
    LayerCase("SeparableConv2D", "images", lambda: layers.SeparableConv2D(3, 3)),
    LayerCase("BatchNormalization", "images", layers.BatchNormalization),
    LayerCase("GroupNormalization", "images", lambda: layers.GroupNormalization(2)),
    LayerCase("Conv3D", "volumes", lambda: layers.Conv3D(3, 2)),
    LayerCase("Conv3DTranspose", "volumes", lambda: layers.Conv3DTranspose(3, 2)),
    LayerCase("ConvLSTM1D", "lines", lambda: layers.ConvLSTM1D(2, 2)),
    LayerCase("ConvLSTM2D", "videos", lambda: layers.ConvLSTM2D(2, 2)),
    LayerCase("ConvLSTM3D", "volume_videos", lambda: layers.ConvLSTM3D(2, 2)),
    LayerCase("STFTSpectrogram", "waves", lambda: layers.STFTSpectrogram(frame_length=16, frame_step=8, fft_length=16),
        call=lambda layer, x: layer(x[:, :, None])),
    LayerCase("Dropout", "random", lambda: layers.Dropout(0.4, seed=3)),
    LayerCase("SpatialDropout1D", "random", lambda: layers.SpatialDropout1D(0.4, seed=4)),
    LayerCase("GaussianNoise", "random", lambda: layers.GaussianNoise(0.5, seed=5)),
    LayerCase("GaussianDropout", "random", lambda: layers.GaussianDropout(0.4, seed=6)),
    LayerCase("AlphaDropout", "random", lambda: layers.AlphaDropout(0.4, seed=7)),
    LayerCase("SpatialDropout2D", "random_images", lambda: layers.SpatialDropout2D(0.4, seed=3)),
    LayerCase("SpatialDropout3D", "random_volumes", lambda: layers.SpatialDropout3D(0.4, seed=3)),
    LayerCase("RandomBrightness", "augmented", lambda: layers.RandomBrightness(0.3, seed=1)),
    LayerCase("RandomColorDegeneration", "augmented", lambda: layers.RandomColorDegeneration(0.5, seed=1)),
    LayerCase("RandomColorJitter", "augmented", lambda: layers.RandomColorJitter(brightness_factor=0.3, seed=1)),
    LayerCase("RandomContrast", "augmented", lambda: layers.RandomContrast(0.3, seed=1)),
    LayerCase("RandomErasing", "augmented", lambda: layers.RandomErasing(seed=1)),
    LayerCase("RandomFlip", "augmented", lambda: layers.RandomFlip(seed=1)),
    LayerCase("RandomGaussianBlur", "augmented", lambda: layers.RandomGaussianBlur(seed=1)),
    LayerCase("RandomGrayscale", "augmented", lambda: layers.RandomGrayscale(seed=1)),
    LayerCase("RandomHue", "augmented", lambda: layers.RandomHue(0.3, seed=1)),
    LayerCase("RandomInvert", "augmented", lambda: layers.RandomInvert(seed=1)),
    LayerCase("RandomPosterization", "augmented", lambda: layers.RandomPosterization(4, seed=1)),
    LayerCase("RandomSaturation", "augmented", lambda: layers.RandomSaturation(0.5, seed=1)),
    LayerCase("RandomSharpness", "augmented", lambda: layers.RandomSharpness(0.5, seed=1)),
    LayerCase("Solarization", "augmented", lambda: layers.Solarization(0.5, 0.5, seed=1)),
]  # fmt: skip
