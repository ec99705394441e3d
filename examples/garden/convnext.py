"""ConvNeXt of any size, for image classification: KerasHub has none, and `keras.applications` has it in full size only.

    images --> stem, 4 x 4 --> blocks --> half the side, more channels --> blocks --> ... --> mean --> logits

After Liu et al., "A ConvNet for the 2020s" (2022). Compile it with `SparseCategoricalCrossentropy(from_logits=True)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import layers

_EPSILON = 1e-6


class ChannelScale(layers.Layer):
    """Multiplies each channel by a weight.

    Args:
        initial: what the weights begin with.
        **arguments: of `keras.layers.Layer`.
    """

    def __init__(self, initial: float, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.initial = initial

    def build(self, shape: Any) -> None:
        """Makes the weights, `[channels]`."""
        self.scale = self.add_weight(
            shape=(shape[-1],), initializer=keras.initializers.Constant(self.initial), name="scale"
        )

    def call(self, x: Any) -> Any:
        """Returns `x`, scaled."""
        return x * self.scale

    def get_config(self) -> dict[str, Any]:
        """The layer's arguments."""
        return {**super().get_config(), "initial": self.initial}


def convnext(
    depths: Sequence[int] = (3, 3, 9, 3),
    widths: Sequence[int] = (96, 192, 384, 768),
    classes: int = 1000,
    image_shape: tuple[int, int, int] = (224, 224, 3),
    layer_scale: float = 1e-6,
) -> keras.Model:
    """Makes a ConvNeXt; by default the tiny one of the paper, of 28.6 million weights.

    Args:
        depths: blocks of each group.
        widths: channels of each group.
        classes: how many classes there are.
        image_shape: height, width and channels.
        layer_scale: what the blocks' outputs are multiplied by at first.

    Returns:
        A model of images `[batch, height, width, channels]`, float32, with logits `[batch, classes]`.

    Raises:
        ValueError: if there are not as many widths as depths.
    """
    if len(depths) != len(widths):
        raise ValueError(f"As many widths as depths are needed. Received: depths={depths}, widths={widths}.")
    images = keras.Input(image_shape)
    x = _normalised(layers.Conv2D(widths[0], 4, strides=4, name="stem")(images), "stem")
    for group, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if group:
            x = layers.Conv2D(width, 2, strides=2, name=f"smaller_{group}")(_normalised(x, f"smaller_{group}"))
        for block in range(depth):
            x = _block(x, width, f"group_{group}_block_{block}", layer_scale)
    x = _normalised(layers.GlobalAveragePooling2D(name="mean")(x), "head")
    return keras.Model(images, layers.Dense(classes, name="logits")(x), name="convnext")


def _normalised(x: Any, name: str) -> Any:
    return layers.LayerNormalization(epsilon=_EPSILON, name=f"{name}_norm")(x)


def _block(x: Any, width: int, name: str, layer_scale: float) -> Any:
    y = layers.DepthwiseConv2D(7, padding="same", name=f"{name}_depthwise")(x)
    y = layers.Dense(4 * width, activation="gelu", name=f"{name}_wide")(_normalised(y, name))
    y = layers.Dense(width, name=f"{name}_narrow")(y)
    return layers.Add(name=f"{name}_add")([x, ChannelScale(layer_scale, name=f"{name}_scale")(y)])
