"""Session hooks of the estimators: initialisation, stop after a number of runs, start step."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1


class InitializerHook(tf.compat.v1.train.SessionRunHook):
    """Runs an operation in each new session, after its variables are initialised.

    Args:
        operation: the operation.
    """

    def __init__(self, operation: tf.Operation) -> None:
        self._operation = operation

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs the operation."""
        session.run(self._operation)


class StopAfterRunsHook(tf.compat.v1.train.SessionRunHook):
    """Stops after so many runs of the session.

    Args:
        runs: how many.
    """

    def __init__(self, runs: int) -> None:
        self._left = runs

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Counts the run."""
        self._left -= 1
        if self._left <= 0:
            run_context.request_stop()


class StartStepHook(tf.compat.v1.train.SessionRunHook):
    """Notes the global step at which a session starts, as `step`."""

    def __init__(self) -> None:
        self.step = 0
        self._variable: Any = None

    def begin(self) -> None:
        """Finds the global step of the graph."""
        self._variable = tf1.train.get_global_step()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Reads it."""
        self.step = int(session.run(self._variable))
