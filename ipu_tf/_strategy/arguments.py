"""Arguments of `strategy.run`: what a program takes of each in every run, and what it is traced with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf._strategy.iterator_arguments import elements_text
from ipu_tf.device.run.recompilation import array_text
from ipu_tf.ipu_iterator import IPUIterator, iterators_in_programs

_PLAIN = (bool, int, float, str, bytes, type(None))
_DATA_PARTS = {tf.IndexedSlices: 2, tf.RaggedTensor: 1, tf.SparseTensor: 2}
"""Of tensors of several parts, how many of these, the first ones, are data. The others decide on shapes."""


def is_tensor(leaf: Any) -> bool:
    """Returns whether an argument is one tensor, which a program takes in every run."""
    return isinstance(leaf, (tf.Tensor, np.ndarray, np.generic)) and not isinstance(leaf, tf.Variable)


def tensors_of(leaf: Any) -> list[tf.Tensor]:
    """Returns the tensors of an argument that a program takes in every run."""
    return [tf.convert_to_tensor(leaf)] if is_tensor(leaf) else _parts(leaf)[: _DATA_PARTS.get(type(leaf), 0)]


def filled(leaf: Any, tensors: Iterator[tf.Tensor]) -> Any:
    """Returns an argument as it is traced: with the next ones of some tensors in place of `tensors_of`."""
    if is_tensor(leaf):
        return next(tensors)
    if type(leaf) not in _DATA_PARTS:
        return leaf
    count = _DATA_PARTS[type(leaf)]
    fixed = [tf.constant(np.asarray(part)) for part in _parts(leaf)[count:]]  # what decides on shapes is a constant
    parts = [*itertools.islice(tensors, count), *fixed]
    return tf.nest.pack_sequence_as(leaf, parts, expand_composites=True)


def filled_in_graph(leaf: Any, tensors: Iterator[tf.Tensor]) -> Any:
    """Returns an argument as `filled` does, but tensors of several parts as they are: a graph captures their parts."""
    return next(tensors) if is_tensor(leaf) else leaf


def computation_of(
    strategy: Any,
    function: Callable[..., Any],
    structure: Any,
    leaves: Sequence[Any],
    fill: Callable[[Any, Iterator[tf.Tensor]], Any] = filled,
) -> Callable[..., Any]:
    """Returns a function, for a trace, of the tensors among some arguments.

    Args:
        strategy: that runs it.
        function: takes all arguments.
        structure: of its positional and keyword arguments.
        leaves: of these.
        fill: `filled` or `filled_in_graph`.
    """

    def body(*tensors: tf.Tensor) -> Any:
        fed = iter(tensors)
        args, kwargs = tf.nest.pack_sequence_as(structure, [fill(leaf, fed) for leaf in leaves])
        ordinal = strategy._device_ordinal  # noqa: SLF001 - one class in several files
        with tf.distribute.ReplicaContext(strategy, replica_id_in_sync_group=0), iterators_in_programs(ordinal):
            return function(*args, **kwargs)

    return body


def spec_of(tensor: tf.Tensor) -> tf.TensorSpec:
    """Returns a tensor's shape and dtype."""
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def key_of(leaf: Any, iterators: Sequence[IPUIterator]) -> Any:
    """Returns a key of an argument: a program that was traced with one serves all others of that key.

    Args:
        leaf: the argument.
        iterators: the iterators of which any other does as well, if its elements are alike.
    """
    if is_tensor(leaf) or type(leaf) in _DATA_PARTS:
        data = tensors_of(leaf)
        fixed = _parts(leaf)[len(data) :]
        types = [(tuple(tensor.shape), tensor.dtype) for tensor in data]
        return (
            type(leaf) if type(leaf) in _DATA_PARTS else None,
            *types,
            *(np.asarray(part).tobytes() for part in fixed),
        )
    if isinstance(leaf, _PLAIN):
        return (type(leaf), leaf)
    place = next((place for place, iterator in enumerate(iterators) if iterator is leaf), None)
    return (type(leaf), id(leaf)) if place is None else (type(leaf), place, elements_text(leaf))


def is_kept(leaf: Any) -> bool:
    """Returns whether an argument is told from others by its identity, which nothing else may take."""
    return not (is_tensor(leaf) or type(leaf) in _DATA_PARTS or isinstance(leaf, _PLAIN))


def text_of(leaf: Any) -> str:
    """Returns what an argument is, as recompilations are explained with."""
    if is_tensor(leaf):
        return array_text(np.shape(leaf), tf.convert_to_tensor(leaf).dtype)
    if type(leaf) in _DATA_PARTS:
        parts = ", ".join(array_text(part.shape, part.dtype) for part in _parts(leaf))
        return f"{type(leaf).__name__} of {parts}"
    if isinstance(leaf, _PLAIN):
        return repr(leaf)
    if isinstance(leaf, (tf.data.Iterator, IPUIterator)):
        return f"an iterator over {leaf.element_spec}"
    return f"a {type(leaf).__name__} at {id(leaf):#x}"


def _parts(leaf: Any) -> list[tf.Tensor]:
    parts: list[tf.Tensor] = tf.nest.flatten(leaf, expand_composites=True) if type(leaf) in _DATA_PARTS else []
    return parts
