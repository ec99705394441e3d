"""Session hook that advances the global step after each run of an estimator's loop."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

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
