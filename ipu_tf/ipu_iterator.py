"""`IPUIterator`: `iter(dataset)` within a strategy's scope, an iterator for use inside device programs."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ipu_tf._config.state import graphcore_rules
from ipu_tf._tracing.unconverted import do_not_convert
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.lowering.tensorflow import tf_patches, tf_values


class IPUIterator:
    """Dequeues elements of a dataset inside a program on the device: `next(iterator)` in a `tf.function`.

    Args:
        dataset: a `tf.data.Dataset` of fixed shapes, or TensorFlow's own iterator over one.
        infeed_spec: accepted for compatibility; must be None.
        element_spec: accepted for compatibility; must be None.
        **kwargs: arguments of the `IPUInfeedQueue`.

    Raises:
        ValueError: without a dataset, or as `IPUInfeedQueue`.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset | tf.data.Iterator | None = None,
        infeed_spec: Any = None,
        element_spec: Any = None,
        **kwargs: Any,
    ) -> None:
        if dataset is None or infeed_spec is not None or element_spec is not None:
            raise ValueError("Either `dataset` or both `infeed_spec` and `element_spec` need to be provided.")
        self._infeed_queue = IPUInfeedQueue(dataset, **kwargs)
        self._element_spec = dataset.element_spec

    @property
    def element_spec(self) -> Any:
        """The structure, shapes and dtypes of an element."""
        return self._element_spec

    def __iter__(self) -> IPUIterator:
        if not tf_values.executing_eagerly():
            raise NotImplementedError(
                "A `for` loop over an iterator does not end in a program on the device: the program is compiled before "
                "it is known how many elements there are. Loop over a number of steps: `for _ in tf.range(steps):` and "
                "`next(iterator)`."
            )
        return self

    @do_not_convert
    def __next__(self) -> Any:
        """The next element, inside a program.

        Raises:
            RuntimeError: in eager mode.
        """
        if tf_values.executing_eagerly():
            raise RuntimeError(
                "Accessing dataset elements can not be accessed in eager mode when inside 'IPUStrategy'. The dataset "
                "elements should be accessed inside of a 'tf.function' with 'jit_compile=True' set, which is run with "
                "`strategy.run`."
            )
        return self._infeed_queue._dequeue()  # noqa: SLF001 - dequeuing is the loop's business, and the iterator's

    def get_next(self) -> Any:
        """The next element, inside a program; as `next`."""
        return self.__next__()

    def get_next_as_optional(self) -> None:
        """Not supported.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("IPU Dataset iterator does not support get_next_as_optional().")

    def _serialize_to_tensors(self) -> None:
        raise NotImplementedError("IPU Dataset iterator is not currently saveable.")


IPUOwnedIterator = IPUIterator


@contextlib.contextmanager
def ipu_iterators(ordinal: int) -> Iterator[None]:
    """Context manager: elements that `iter(dataset)` gives are read by programs on `/device:IPU:<ordinal>`.

    By Graphcore's rules, and in graphs, it is an `IPUIterator`, which programs alone read. Else it is TensorFlow's own:
    Python loops over it on the host, `strategy.run` feeds programs from it.
    """

    def make(dataset: tf.data.Dataset) -> IPUIterator:
        if tf.inside_function():
            raise NotImplementedError(
                "An iterator is made once, and its position persists over the runs of a program. Received: "
                "iter(dataset) within the function that the device runs. Make it before, in the strategy's scope."
            )
        if tf_values.executing_eagerly() and not graphcore_rules():
            return tf_values.stock_iterator(dataset)
        return IPUIterator(dataset, device_ordinal=ordinal)

    with tf_patches.dataset_iterators(make):
        yield


@contextlib.contextmanager
def iterators_in_programs(ordinal: int) -> Iterator[None]:
    """Context manager: programs dequeue elements of TensorFlow's own iterators, which were made outside of a scope."""
    with tf_patches.sources_in_programs(lambda iterator: _source(iterator, ordinal)):
        yield


def _source(iterator: Any, ordinal: int) -> IPUIterator:
    source = fed_by(iterator, ordinal)
    if source is iterator:
        raise NotImplementedError(
            "A program takes elements of an iterator that is known when it is traced. Received: an argument of a "
            "`tf.function` of the host, which is known only when that runs. Use the iterator itself in the function "
            "(close over it), or give it to `strategy.run` outside of a `tf.function`."
        )
    return source


def fed_by(iterator: Any, ordinal: int) -> Any:
    """Returns the `IPUIterator` over TensorFlow's own iterator; other objects are returned unchanged.

    Both go on from the same place: elements that a program took are gone for the host, and the other way round.
    """
    if not tf_patches.is_stock_iterator(iterator):
        return iterator
    known = vars(iterator).setdefault("_ipu_tf_iterators", {})
    if ordinal not in known:
        with tf_values.eager_mode():
            known[ordinal] = IPUIterator(iterator, device_ordinal=ordinal)
    return known[ordinal]


def feed_of(iterator: IPUIterator) -> str:
    """Returns the name of the feed from which programs dequeue an iterator's elements."""
    return iterator._infeed_queue.feed_name  # noqa: SLF001 - one class in this file


def stand_in(iterator: IPUIterator, feed: str) -> IPUIterator:
    """Returns an iterator over elements like those of another, which has no data: programs dequeue them from a feed."""
    other = copy.copy(iterator)
    other._infeed_queue = iterator._infeed_queue._with_feed(feed)  # noqa: SLF001
    return other


def stock_iterators() -> contextlib.AbstractContextManager[None]:
    """Context manager: `iter(dataset)` is TensorFlow's own iterator, also inside a strategy's scope."""
    return tf_patches.dataset_iterators(None)
