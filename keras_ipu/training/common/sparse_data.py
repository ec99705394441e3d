"""Makes sparse data dense before the device is fed it: SciPy's matrices, `tf.SparseTensor` and JAX's `BCOO`.

Keras would multiply them as they are. The result is the same; the memory is that of the dense arrays.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def dense_data(data: Any) -> Any:
    """Returns data for fit, evaluate or predict with sparse arrays made dense; other data as it is.

    Args:
        data: arrays, nested in lists, tuples and dictionaries, or a `tf.data.Dataset`. What generators and `PyDataset`s
            give is not looked at.

    Raises:
        ValueError: for a `tf.RaggedTensor` on Keras's TensorFlow back end, which would not pad it.
    """
    if isinstance(data, tf.data.Dataset):
        specs = tf.nest.flatten(data.element_spec)
        return data.map(_dense_element) if any(isinstance(spec, tf.SparseTensorSpec) for spec in specs) else data
    if isinstance(data, dict):
        return {name: dense_data(part) for name, part in data.items()}
    if type(data) in (list, tuple) and not (data and isinstance(data[0], (bool, int, float, str))):
        return type(data)(dense_data(part) for part in data)
    return _dense_array(data)


def _dense_element(*element: Any) -> Any:
    parts = tuple(tf.nest.map_structure(_dense_array, part, expand_composites=False) for part in element)
    return parts if len(parts) > 1 else parts[0]


def _dense_array(array: Any) -> Any:
    if isinstance(array, tf.SparseTensor):
        return tf.sparse.to_dense(tf.sparse.reorder(array))
    if isinstance(array, tf.RaggedTensor) and keras.backend.backend() == "tensorflow":
        raise ValueError(
            f"Rows of different lengths are padded before the device is fed them. Received: a tf.RaggedTensor of shape "
            f"{array.shape}. Pass `x.to_tensor()`, which pads with zeros."
        )
    kind = type(array)
    if kind.__module__.startswith("scipy.sparse"):
        return array.toarray()
    return array.todense() if kind.__module__.startswith("jax.experimental.sparse") else array
