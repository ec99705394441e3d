"""Makes sparse batches dense before the device is fed them: SciPy's matrices, `tf.SparseTensor` and JAX's `BCOO`.

Keras would multiply them as they are. The result is the same; the memory is that of a dense batch, not of all the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

_PAD = "The device is fed rows of one length."


def check_ragged(data: Any) -> None:
    """Checks that data for fit, evaluate or predict has no ragged tensors; Keras on JAX pads them itself.

    Args:
        data: arrays, nested in lists, tuples and dictionaries, or other data, which is not looked at.

    Raises:
        ValueError: for a `tf.RaggedTensor` on Keras's TensorFlow back end.
    """
    if isinstance(data, dict):
        data = list(data.values())
    if type(data) in (list, tuple) and not (data and isinstance(data[0], (bool, int, float, str))):
        for part in data:
            check_ragged(part)
    if isinstance(data, tf.RaggedTensor) and keras.backend.backend() == "tensorflow":
        raise ValueError(
            f"{_PAD} Received: a tf.RaggedTensor of shape {data.shape}. Pass `x.to_tensor()`, which pads with zeros."
        )


def dense_elements(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset of dense tensors; one that has nothing else as it is.

    Raises:
        ValueError: for elements that are ragged.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    ragged = next((spec for spec in specs if isinstance(spec, tf.RaggedTensorSpec)), None)
    if ragged is not None:
        raise ValueError(
            f"{_PAD} Received: batches with {ragged}. Make them of `x.to_tensor()`, which pads with zeros."
        )
    if not any(isinstance(spec, tf.SparseTensorSpec) for spec in specs):
        return dataset
    is_tuple = type(dataset.element_spec) is tuple  # whose parts `map` gives one by one; not those of named tuples
    return dataset.map(lambda *element: dense_batch(element if is_tuple else element[0]))


def dense_batch(batch: Any) -> Any:
    """Returns a structure of arrays, or of datasets of them, with sparse arrays made dense."""
    return keras.tree.map_structure(_dense_array, batch)


class DenseBatches:
    """Iterator over batches that makes sparse arrays dense. The first batch shows whether there are any.

    Args:
        batches: an iterator over structures of arrays.
    """

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._sparse: bool | None = None

    def __iter__(self) -> DenseBatches:
        return self

    def __next__(self) -> Any:
        batch = next(self._batches)
        if self._sparse is None:
            self._sparse = any(map(_is_sparse, keras.tree.flatten(batch)))
        return dense_batch(batch) if self._sparse else batch


def _is_sparse(array: Any) -> bool:
    kind = type(array).__module__
    return isinstance(array, tf.SparseTensor) or kind.startswith(("scipy.sparse", "jax.experimental.sparse"))


def _dense_array(array: Any) -> Any:
    if isinstance(array, tf.data.Dataset):
        return dense_elements(array)
    if not _is_sparse(array):
        return array
    if isinstance(array, tf.SparseTensor):
        return tf.sparse.to_dense(tf.sparse.reorder(array))
    return array.toarray() if type(array).__module__.startswith("scipy.sparse") else array.todense()
