"""Destruction of tf.data iterators in a background thread: callers do not wait."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf.device.feeds import iterator_destruction
from ipu_tf.device.feeds.iterator_destruction import destroy_in_background
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.dataset_source import GraphDataset, eager_elements

PATIENCE = 30.0


class Feed:
    """Object whose iterator is destroyed after it."""


class SlowIterator:
    """Iterator whose destruction waits for an event; notes the thread it ended in."""

    def __init__(self, ended: list[str], may_end: threading.Event) -> None:
        self._ended = ended
        self._may_end = may_end

    def __del__(self) -> None:
        self._may_end.wait(PATIENCE)
        self._ended.append(threading.current_thread().name)


def eventually(condition: Callable[[], Any]) -> bool:
    """Whether something comes to be, within some time."""
    end = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


def test_an_iterator_is_destroyed_in_another_thread_after_its_feed() -> None:
    ended: list[str] = []
    may_end = threading.Event()
    feeds = [Feed() for _ in range(3)]
    for feed in feeds:
        destroy_in_background(feed, SlowIterator(ended, may_end))
    del feed
    feeds.clear()  # would wait, were they destroyed here
    assert not ended
    may_end.set()
    assert eventually(lambda: len(ended) == 3)
    assert set(ended) == {"ipu-destroy-iterator"}


def test_an_iterator_that_takes_long_does_not_delay_the_next() -> None:
    slow: list[str] = []
    quick: list[str] = []
    may_end, already = threading.Event(), threading.Event()
    already.set()
    feeds = [Feed(), Feed()]
    destroy_in_background(feeds[0], SlowIterator(slow, may_end))
    destroy_in_background(feeds[1], SlowIterator(quick, already))
    feeds.pop(0)
    feeds.clear()
    assert eventually(lambda: quick)
    assert not slow
    may_end.set()
    assert eventually(lambda: slow)


@pytest.mark.parametrize("owners", [1, 2])
def test_an_iterator_is_not_destroyed_by_what_refers_to_it_longest(owners: int) -> None:
    """As the garbage collector does, which finds all owners first, calls back, and drops what they refer to last."""
    ended: list[str] = []
    may_end = threading.Event()
    may_end.set()
    others = [SlowIterator(ended, may_end) for _ in range(2 * iterator_destruction._MOST)]
    for _ in range(owners):
        feeds = [Feed() for _ in others]
        for feed, other in zip(feeds, others, strict=True):
            destroy_in_background(feed, other)
        del feeds, feed, other
    time.sleep(2 * iterator_destruction._KEPT)
    assert not ended
    count = len(others)
    others.clear()
    assert eventually(lambda: len(ended) == count)
    assert set(ended) == {"ipu-destroy-iterator"}


HEAD = """
import time
from ipu_tf.device.feeds import iterator_destruction
from ipu_tf.device.feeds.iterator_destruction import destroy_in_background

class Feed: pass

class SlowIterator:
    def __del__(self):
"""
AT_THE_END = """
        print("ended", flush=True)
        time.sleep(60)

alive, gone = Feed(), Feed()
destroy_in_background(alive, SlowIterator())
destroy_in_background(gone, SlowIterator())
del gone
print("last line", flush=True)
"""


def test_a_process_ends_without_them() -> None:
    ran = subprocess.run([sys.executable, "-c", HEAD + AT_THE_END], capture_output=True, text=True, timeout=40)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "last line\n", "")


IN_THE_MIDDLE = """
        print("begins to end", flush=True)
        time.sleep(3)
        print("ended", flush=True)

feed = Feed()
destroy_in_background(feed, SlowIterator())
del feed
time.sleep(2)
print("last line", flush=True)
"""


def test_a_process_waits_for_what_ends_already() -> None:
    """Were its thread cut off within TensorFlow, the process would be aborted: "exception not rethrown"."""
    ran = subprocess.run([sys.executable, "-c", HEAD + IN_THE_MIDDLE], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "begins to end\nlast line\nended\n", "")


def test_a_feed_does_not_end_its_iterator_itself() -> None:
    iterator = iter(tf.data.Dataset.range(5).map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE))
    handle = weakref.ref(iterator._iterator_resource)
    feed = TensorFeed(iterator)
    infeed = feed.as_infeed("data")
    assert [int(infeed.next()[0]) for _ in range(5)] == [1, 2, 3, 4, 5]
    ended = weakref.ref(iterator)
    del iterator, feed, infeed
    gc.collect()
    assert ended() is None
    assert handle() is not None
    assert eventually(lambda: handle() is None)


def _opened(kind: str) -> Any:
    """Elements of a dataset, read from a graph, by TensorFlow's iterator that the caller made, or by one of ours."""
    if kind == "graph":
        with tf.Graph().as_default():
            return GraphDataset(tf.data.Dataset.range(5)).open()()
    numbers = tf.data.Dataset.range(5)
    return eager_elements(tf_values.stock_iterator(numbers, tuned=False) if kind == "caller's iterator" else numbers)()


@pytest.mark.parametrize("kind", ["graph", "dataset", "caller's iterator"])
def test_an_iterator_is_destroyed_in_the_background_after_what_reads_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled: list[Any] = []
    monkeypatch.setattr(iterator_destruction, "_schedule", scheduled.append)
    elements = _opened(kind)
    assert [int(value) for (value,) in (next(elements), next(elements))] == [0, 1]
    gc.collect()  # the iterator is gone, and its resource lives on
    before = len(scheduled)
    del elements
    gc.collect()
    [last] = scheduled[before:]
    assert last.dtype == tf.resource and all(last is each for each in scheduled)
