"""Feeds batches of TensorFlow tensors to a step loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from ipu_tf._data.narrow_dtypes import fed, narrowed
from ipu_tf._loops.batch_feed import Arrays, BatchFeed
from ipu_tf.device.program.program import Types
from ipu_tf.lowering.tensorflow import tf_values


class TensorFeed(BatchFeed):
    """Elements for step loops: structures of tensors or arrays. Its `spec` is one of `tf.TensorSpec`s and `None`s.

    The `spec` has the dtypes of the data, as the step's function sees them; `types` have 32 bits for 64, as fed.
    """

    def __init__(
        self,
        iterator: Iterator[Any],
        on_cast: Callable[[str, str], None] = lambda was, becomes: None,
        sizes_vary: bool = False,
    ) -> None:
        super().__init__(iterator, on_cast, sizes_vary)
        tf_values.destroy_iterator_in_background(iterator)

    def _spec_of(self, element: Any) -> Any:
        return tf.nest.map_structure(self._leaf_spec, _without_optionals(element))

    def _types_of(self, spec: Any) -> Types:
        types = [fed(t) for t in tf.nest.flatten(spec) if t is not None]
        return tuple(jax.ShapeDtypeStruct(tuple(t.shape.as_list()), t.dtype.as_numpy_dtype) for t in types)

    def _arrays_of(self, element: Any) -> Arrays:
        return tuple(_memory(leaf) for leaf in tf.nest.flatten(_without_optionals(element)) if leaf is not None)

    def _packed(self, arrays: Arrays) -> Any:
        given = iter(arrays)
        leaves = [None if spec is None else next(given) for spec in tf.nest.flatten(self._spec)]
        return tf.nest.pack_sequence_as(self._spec, leaves)

    def _next(self) -> Any:
        with tf_values.eager_mode():
            return super()._next()

    def _reader(self) -> Callable[[], Arrays]:
        return tf_values.element_reader(self._iterator) or super()._reader()

    def _leaf_spec(self, leaf: Any) -> tf.TensorSpec | None:
        if leaf is None:
            return None
        spec = tf.TensorSpec.from_tensor(leaf) if isinstance(leaf, tf.Tensor) else _array_spec(leaf)
        narrowed(spec, self._on_cast)
        return spec


def _array_spec(leaf: Any) -> tf.TensorSpec:
    array = np.asarray(leaf)
    return tf.TensorSpec(array.shape, tf.as_dtype(array.dtype))


def _memory(leaf: Any) -> np.ndarray:
    return tf_values.tensor_memory(leaf) if isinstance(leaf, tf.Tensor) else np.asarray(leaf)


def _without_optionals(element: Any) -> Any:
    """Replaces empty `tf.experimental.Optional`s, which Keras uses for `None` in a dataset, by `None`."""
    return tf.nest.map_structure(lambda leaf: None if isinstance(leaf, tf.experimental.Optional) else leaf, element)
