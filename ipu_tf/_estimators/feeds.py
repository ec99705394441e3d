"""Session hook that initialises and deletes the infeed and outfeed of an estimator."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedQueue

tf1 = tf.compat.v1


def free(outfeed: IPUOutfeedQueue) -> None:
    """Frees an outfeed of the current graph, whose program will not run."""
    with tf1.Session() as session:
        session.run(outfeed.deleter)


class FeedsHook(tf.compat.v1.train.SessionRunHook):
    """Starts the infeed in each session; `close` frees the queues.

    Args:
        infeed: the program's infeed, in the current graph.
        outfeed: the program's outfeed, if it has one.
    """

    def __init__(self, infeed: IPUInfeedQueue, outfeed: IPUOutfeedQueue | None) -> None:
        self._graph = tf1.get_default_graph()
        self._start = infeed.initializer
        self._free_infeed = infeed.deleter
        self._free_outfeed = [] if outfeed is None else [outfeed.deleter]
        self._started = False

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Starts the infeed at the first element of its data."""
        session.run(self._start)
        self._started = True

    def close(self) -> None:
        """Frees the queues, however the sessions ended."""
        with tf1.Session(graph=self._graph) as session:
            session.run(self._free_outfeed + ([self._free_infeed] if self._started else []))
