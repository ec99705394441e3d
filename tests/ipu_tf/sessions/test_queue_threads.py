"""Infeed queues of TensorFlow 1's graphs that are never deleted leave no threads behind."""

from __future__ import annotations

import gc
import os
import time

import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.feeds import queues
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
SECONDS = 30
"""For how long iterators may take to end: TensorFlow's own threads are slow to notice."""


def threads() -> int:
    """The threads of this process, TensorFlow's among them."""
    return len(os.listdir("/proc/self/task"))


def most_threads(wanted: int) -> int:
    """The threads of this process, once there are no more than wanted, or after a while."""
    end = time.monotonic() + SECONDS
    while threads() > wanted and time.monotonic() < end:
        gc.collect()
        time.sleep(0.1)
    return threads()


def run_once() -> None:
    """Runs a program with a queue in a graph and a session of its own."""
    with tf.Graph().as_default(), tf1.Session() as session:
        last = tf1.placeholder(tf.int64, [])
        dataset = tf.data.Dataset.range(last).map(lambda x: tf.cast(x, tf.float32)).prefetch(2)
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            total = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(4, lambda total, x: total + x, [0.0], queue))
        session.run(queue.initializer, {last: 100})
        gc.collect()  # the graph keeps its infeed
        assert session.run(total) == [6.0]


def test_iterators_end_with_their_graph() -> None:
    with ipus(1):
        run_once()
        before = threads()
        for _ in range(6):
            run_once()
        assert most_threads(before + 6) <= before + 6
    assert len(queues._infeeds) <= 1  # the last graph may live on
