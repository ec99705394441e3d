"""Iterators among the arguments of `strategy.run`: one program serves all whose elements are alike.

strategy.run(step, [iterator])
                        │        traced with a stand-in, which dequeues from a feed of a name of its own:
                        ▼        in each run that name is the feed of the iterator that is given
program: dequeue from "argument_0"
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ipu_tf._state.numbers import next_number
from ipu_tf.device.feeds import queues
from ipu_tf.ipu_iterator import IPUIterator, feed_of, stand_in


class IteratorFeeds:
    """Names of the feeds from which a program dequeues elements of the iterators that it is given.

    Args:
        names: one for each distinct iterator, in their order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def of(self, iterators: Sequence[IPUIterator]) -> Iterator[None]:
        """Context manager: the program dequeues elements of these iterators; one thread at a time."""
        if not self._names:
            yield
            return
        names = dict(zip(self._names, map(feed_of, iterators), strict=True))
        with self._lock, queues.known_as(names):
            yield


def distinct_iterators(leaves: Sequence[Any]) -> list[IPUIterator]:
    """Returns the iterators among arguments, each once."""
    return list({id(leaf): leaf for leaf in leaves if isinstance(leaf, IPUIterator)}.values())


def with_stand_ins(leaves: Sequence[Any], iterators: Sequence[IPUIterator]) -> tuple[list[Any], IteratorFeeds]:
    """Replaces iterators among arguments by stand-ins, with which a program can be traced for others like them."""
    names = [f"argument_{next_number('iterator argument')}" for _ in iterators]
    found = {id(each): stand_in(each, name) for each, name in zip(iterators, names, strict=True)}
    return [found.get(id(leaf), leaf) for leaf in leaves], IteratorFeeds(names)


def elements_text(iterator: IPUIterator) -> str:
    """Returns structure, shapes and dtypes of an iterator's elements, for the host and for the device."""
    return f"{iterator.element_spec} {iterator._infeed_queue._specs}"  # noqa: SLF001 - one class in two files
