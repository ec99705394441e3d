"""Predict function of a Keras-on-JAX model on TensorFlow's tensors, for export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras
import numpy as np
import tensorflow as tf

from ipu_tf._serving.jax_serving import tensorflow_function


def predict_step(model: Any, structure: Any, signature: Sequence[tf.TensorSpec]) -> Callable[..., list[tf.Tensor]]:
    """A built model's `call` with `training=False`, on TensorFlow's tensors.

    The model's weights are variables of TensorFlow's in it, with the values that they have now.

    Args:
        model: the model.
        structure: of its inputs.
        signature: its inputs' tensors, in order.

    Returns:
        A function from the tensors of the inputs to those of the outputs.
    """
    variables = [*model.trainable_variables, *model.non_trainable_variables]
    weights = [tf.Variable(np.asarray(variable.value), trainable=False) for variable in variables]

    def outputs(*arrays: Any) -> list[Any]:
        values, inputs = arrays[: len(variables)], arrays[len(variables) :]
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return list(keras.tree.flatten(model(keras.tree.pack_sequence_as(structure, inputs), training=False)))

    elements = [jax.ShapeDtypeStruct(tuple(spec.shape), spec.dtype.as_numpy_dtype) for spec in signature]
    converted = tensorflow_function(outputs, [*(variable.value for variable in variables), *elements])

    def step(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return converted(*weights, *tensors)

    return step
