"""Table of Keras's layers without weights: what each takes, and how it is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

from tests.helpers.keras_parity import numbers

STATELESS_INPUTS: dict[str, np.ndarray] = {
    "vectors": numbers(4, 6),
    "series": numbers(4, 6, 4),
    "images": numbers(4, 6, 8, 3),
    "volumes": numbers(4, 4, 6, 4, 2),
    "waves": numbers(4, 64),
    "pictures": np.abs(numbers(4, 16, 16, 3)) * 60,
}
"""Inputs of the layers of a group. Pictures reach their layers as they are, the others through a dense layer."""


@dataclasses.dataclass(frozen=True)
class StatelessRow:
    """One layer.

    Attributes:
        group: which input it takes.
        make: makes it.
        call: calls it.
    """

    group: str
    make: Callable[[], keras.layers.Layer]
    call: Callable[[Any, Any], Any] = lambda layer, x: layer(x)


def _merged(layer: Any, x: Any) -> Any:
    return layer([x, keras.ops.sin(x)])


def _masked(layer: Any, x: Any) -> Any:
    return layers.SimpleRNN(2, kernel_initializer="ones", recurrent_initializer="identity")(layer(keras.ops.relu(x)))


class _Within(keras.layers.Layer):
    """A layer called by another one: stock Keras leaves `Equalization` itself out of a model's graph."""

    def __init__(self, inner: keras.layers.Layer) -> None:
        super().__init__()
        self.inner = inner

    def call(self, x: Any) -> Any:
        return self.inner(x)


def _row(group: str, name: str, *args: Any, call: Callable[[Any, Any], Any] | None = None, **kwargs: Any) -> Any:
    more = {} if call is None else {"call": call}
    return name, StatelessRow(group, lambda: getattr(layers, name)(*args, **kwargs), **more)


def _sizes(group: str, dimensions: int, size: int) -> list[tuple[str, StatelessRow]]:
    kind = f"{dimensions}D"
    return [
        _row(group, f"AdaptiveAveragePooling{kind}", size),
        _row(group, f"AdaptiveMaxPooling{kind}", size),
        _row(group, f"AveragePooling{kind}", 3, 2, "same"),
        _row(group, f"MaxPooling{kind}", 2),
        _row(group, f"GlobalAveragePooling{kind}"),
        _row(group, f"GlobalMaxPooling{kind}", keepdims=True),
        _row(group, f"Cropping{kind}", 1),
        _row(group, f"UpSampling{kind}", 2),
        _row(group, f"ZeroPadding{kind}", 2),
    ]


STATELESS_ROWS: dict[str, StatelessRow] = dict(
    [
        _row("vectors", "Activation", "gelu"),
        _row("vectors", "ActivityRegularization", 0.1, 0.2),
        _row("vectors", "ELU"),
        _row("vectors", "Identity"),
        _row("vectors", "LeakyReLU"),
        _row("vectors", "ReLU", 1.5, 0.1, 0.2),
        _row("vectors", "RepeatVector", 3),
        _row("vectors", "Softmax"),
        _row("vectors", "UnitNormalization"),
        *(
            _row("series", name, call=_merged)
            for name in ("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract")
        ),
        _row("series", "Dot", (1, 1), True, call=_merged),
        _row("series", "Flatten"),
        _row("series", "Masking", call=_masked),
        _row("series", "Permute", (2, 1)),
        _row("series", "Reshape", (-1, 3)),
        *_sizes("series", 1, 2),
        *_sizes("images", 2, 3),
        *_sizes("volumes", 3, 2),
        _row("images", "CenterCrop", 4, 5),
        _row("images", "Rescaling", 0.1, 0.5),
        _row("images", "Resizing", 9, 5, crop_to_aspect_ratio=True),
        _row("waves", "MelSpectrogram", 16, 8, 16, sampling_rate=800, num_mel_bins=4, min_freq=20),
        _row("pictures", "AutoContrast"),
        _row("pictures", "ContrastLimitedAdaptiveHistogramEqualization", tile_grid_size=(2, 2)),
        _row("pictures", "Equalization", call=lambda layer, x: _Within(layer)(x)),
    ]
)
"""By the layer's name. `MaxNumBoundingBoxes` takes no images alone, and has a test of its own."""
