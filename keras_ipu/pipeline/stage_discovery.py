"""Finds the pipeline stages of a subclassed model by tracing its `call` with symbolic inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ipu_tf._data.narrow_dtypes import NARROW
from keras_ipu.pipeline.run_checks import is_pipelined

_DEFAULT_BATCH = 32


def discover_stages(model: Any, given: Mapping[str, Any]) -> None:
    """Traces an unbuilt model once with the shapes of its data, if it may have stages that are not known yet.

    Args:
        model: the model.
        given: the arguments of its `fit`, `evaluate` or `predict`.
    """
    inputs = _inputs(given.get("x"), given.get("batch_size") or _DEFAULT_BATCH)
    if inputs is not None:
        is_pipelined(model, inputs)


def _inputs(x: Any, batch_size: int) -> Any:
    """Returns the `tf.TensorSpec`s of a model's inputs; None for data whose shapes are known only when it is read."""
    if isinstance(x, tf.data.Dataset):
        return keras.utils.unpack_x_y_sample_weight(x.element_spec)[0]
    leaves = tf.nest.flatten(x)
    if not leaves or not all(isinstance(leaf, (np.ndarray, tf.Tensor)) for leaf in leaves):
        return None
    return tf.nest.map_structure(lambda leaf: _spec(leaf, batch_size), x)


def _spec(leaf: Any, batch_size: int) -> tf.TensorSpec:
    dtype = tf.as_dtype(leaf.dtype)
    shape = tuple(leaf.shape[1:]) or (1,)  # Keras gives samples that are numbers a dimension
    return tf.TensorSpec((batch_size, *shape), NARROW.get(dtype, dtype))
