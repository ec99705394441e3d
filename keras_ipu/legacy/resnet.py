"""`keras.applications.resnet.ResNet`, which Keras 2 had in its module: residual networks of user-defined stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from ipu_tf._patches.installation import replace_in
from keras_ipu.stock import models as keras_models
from keras_ipu.stock import patches as keras_patches


def ResNet(  # noqa: N802 - Keras's name
    stack_fn: Callable[[Any], Any],
    preact: bool,
    use_bias: bool,
    model_name: str = "resnet",
    *args: Any,
    layers: Any = None,
    **kwargs: Any,
) -> keras.Model:
    """A residual network of stacks of layers that a function makes.

    Args:
        stack_fn: makes the stacks, given the tensor of the first layers.
        preact: whether normalisation comes before the convolutions.
        use_bias: whether convolutions have a bias.
        model_name: the model's name.
        args: Keras's further arguments, in its order.
        layers: Keras's module of layers, which programs may pass.
        kwargs: Keras's further arguments by name.
    """
    return keras_models.ResNet(stack_fn, preact, use_bias, *args, name=model_name, **kwargs)


def install_resnet() -> None:
    """Adds `ResNet` to Keras's modules of residual networks. Calling it again changes nothing."""
    keras_patches.after_import_of_keras("applications.resnet", _add)


def _add(module: Any) -> None:
    replace_in(module, "ResNet", lambda absent: ResNet, missing=None)
