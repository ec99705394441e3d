"""Gradients of layers outside of models, on whichever backend Keras runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np


def gradients_of(layer: Any, loss: Callable[[], Any]) -> list[np.ndarray]:
    """The gradients of a loss by the weights that a built layer trains.

    Args:
        layer: the layer.
        loss: gives a scalar; calls the layer.
    """
    variables = layer.trainable_variables
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss()
        return [np.asarray(gradient) for gradient in tape.gradient(value, variables)]
    import jax

    def of_weights(weights: list[Any]) -> Any:
        with keras.StatelessScope(list(zip(variables, weights, strict=True))):
            return loss()

    return [np.asarray(gradient) for gradient in jax.grad(of_weights)([variable.value for variable in variables])]
