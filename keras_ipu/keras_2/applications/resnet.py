"""`tensorflow.python.keras.applications.resnet` for Keras 2, as far as it differs from Keras 2's own module.

TensorFlow 2.6 held a Keras beside the one of `tf.keras`. Its `ResNet`, given the layers of `tf.keras`, made a model
that took them for no layers of its own: it computed with them and trained their weights, but `model.layers` was empty.
A program that copies such a model layer by layer copies no weights then, and has those that the copies drew.
"""

from __future__ import annotations

from typing import Any

from tf_keras.src.applications import resnet as _resnet
from tf_keras.src.engine.functional import Functional as _Functional


class Functional(_Functional):
    """A functional model of layers that are another Keras's: `layers` is empty."""

    @property
    def layers(self) -> list[Any]:
        """The model's layers as far as they are of its own Keras: none."""
        return []


def ResNet(*args: Any, layers: Any = None, **kwargs: Any) -> Any:  # noqa: N802 - Keras's name
    """A residual network of stacks of layers that a function makes.

    Args:
        *args: as Keras 2's: `stack_fn`, `preact`, `use_bias` and more.
        layers: the module of layers to make the first and last ones of; by default Keras 2's. If one is given, the
            model is a `Functional` of this module.
        **kwargs: as Keras 2's.

    Returns:
        A functional model of `tf_keras`.
    """
    if layers is None:
        return _resnet.ResNet(*args, **kwargs)
    model = _resnet.ResNet(*args, layers=layers, **kwargs)
    model.__class__ = Functional
    return model


def __getattr__(name: str) -> Any:
    return getattr(_resnet, name)
