"""Reads elements of a `tf.data.Dataset` as NumPy arrays, eagerly or from a TF1 graph."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_graphs, tf_private, tf_values
from ipu_tf.lowering.tensorflow.graph_pruning import pruned


def flat_specs(dataset: tf.data.Dataset) -> list[Any]:
    """Returns the specs of an element's tensors, in the order of `tf.nest.flatten`."""
    return tf.nest.flatten(dataset.element_spec)


def eager_elements(
    dataset: tf.data.Dataset | tf.data.Iterator,
) -> Callable[[], Iterator[tuple[np.ndarray, ...]]]:
    """Returns a function that opens an eager dataset, or TensorFlow's own iterator, from its start.

    Whoever made the iterator keeps it: it is not kept alive by what reads it here.
    """
    if isinstance(dataset, tf.data.Iterator):
        read, kept = tf_values.element_reader(dataset), weakref.ref(dataset)
        return lambda: _elements_of(read or (lambda: _next_element(kept())))

    def open_source() -> Iterator[tuple[np.ndarray, ...]]:
        with tf_values.eager_mode():
            iterator = tf_values.stock_iterator(dataset)
        return _elements(iterator)

    return open_source


def _elements(iterator: Any) -> Iterator[tuple[np.ndarray, ...]]:
    return _elements_of(tf_values.element_reader(iterator) or (lambda: _next_element(iterator)))


def _elements_of(read: Callable[[], tuple[np.ndarray, ...]]) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields elements until the end."""
    while True:
        try:
            element = read()
        except StopIteration:
            return
        yield element


def _next_element(iterator: Any) -> tuple[np.ndarray, ...]:
    with tf_values.eager_mode():
        element = next(iterator)
    return tuple(tf_values.tensor_memory(tensor) for tensor in tf.nest.flatten(element))


_PLACEHOLDERS = ("Placeholder", "PlaceholderWithDefault")


class GraphDataset:
    """Copy of a dataset from a TF1 graph, which can be read without a session.

    Args:
        dataset: the dataset; placeholders it depends on become `inputs`, to be fed when it is opened.

    Attributes:
        inputs: the graph's tensors that have to be given to `open`.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        variant = tf.data.experimental.to_variant(dataset)
        graph = variant.graph
        names = tf_graphs.ancestors(variant.op)
        self.inputs = [op.outputs[0] for op in names if op.type in (*_PLACEHOLDERS, "VarHandleOp", "VariableV2")]
        for tensor in self.inputs:
            if tensor.op.type not in _PLACEHOLDERS:
                raise NotImplementedError(
                    f"An infeed's dataset may depend on placeholders and constants. Received: one that depends on the "
                    f"variable '{tensor.op.name}'. Make the dataset from its value instead."
                )
        self._graph_def = pruned(graph.as_graph_def(), [variant.op.name], {tensor.op.name for tensor in self.inputs})
        self._variant = variant.name
        self._element_spec = dataset.element_spec

    def open(self, *values: np.ndarray) -> Callable[[], Iterator[tuple[np.ndarray, ...]]]:
        """Returns a function that opens the dataset, for the values of its inputs; it does not keep the graph."""
        fed = dict(zip((tensor.name for tensor in self.inputs), values, strict=True))
        graph_def, name, element_spec = self._graph_def, self._variant, self._element_spec

        def variant() -> tf.Tensor:
            tensors = {name: tf.convert_to_tensor(value) for name, value in fed.items()}
            return tf_private.import_graph(graph_def, tensors, [name])[0]

        def open_source() -> Iterator[tuple[np.ndarray, ...]]:
            with tf_values.eager_mode():
                made = tf.compat.v1.wrap_function(variant, [])()
                iterator = tf_values.stock_iterator(tf.data.experimental.from_variant(made, element_spec))
            return _elements(iterator)

        return open_source
