"""Session hooks of an estimator: one starts and frees its queues, one advances the global step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedQueue

tf1 = tf.compat.v1


class StepHook(tf.compat.v1.train.SessionRunHook):
    """Advances the global step after each run of a program, and stops at the last step.

    Args:
        iterations: steps a run.
        steps: how many steps to do, from where the session starts.
        last_step: the step to go up to; one of the two.

    Raises:
        ValueError: if none or both of them are given.
    """

    def __init__(self, iterations: int, steps: int | None, last_step: int | None) -> None:
        if steps is None and last_step is None:
            raise ValueError("One of `num_steps` or `final_step` must be specified.")
        if steps is not None and last_step is not None:
            raise ValueError("Only one of `num_steps` or `final_step` can be specified.")
        self._iterations = iterations
        self._steps = steps
        self._last_step = last_step
        self._variable: Any = None
        self._advance: Any = None

    def begin(self) -> None:
        """Adds the ops that advance the global step to the graph."""
        self._variable = tf1.train.get_global_step()
        with tf.device("/device:CPU:0"):
            self._advance = self._variable.assign_add(self._iterations, read_value=True)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Finds the last step."""
        if self._last_step is None:
            assert self._steps is not None
            self._last_step = int(session.run(self._variable)) + self._steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Advances the step."""
        if run_context.session.run(self._advance) >= self._last_step:
            run_context.request_stop()


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
