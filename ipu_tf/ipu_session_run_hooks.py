"""`IPULoggingTensorHook`: session hook that logs tensors of device programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_tf.lowering.tensorflow import tf_private

__all__ = ["IPULoggingTensorHook"]

tf1 = tf.compat.v1


class IPULoggingTensorHook(tf.compat.v1.train.SessionRunHook):
    """Logs tensors of a program on the device, at level INFO of TensorFlow's log.

    Inside the program call `log`, once; give the hook to the session that runs the program.

    Args:
        every_n_iter: logs after the first run of the session and every so many runs later.
        every_n_secs: logs after the first run and every so many seconds later; one of the two.
        at_end: logs when the session ends; the other two may then be missing.
        formatter: makes the text of the line from a dictionary of arrays by name.
        logging_mode: `LoggingMode.LAST` (default) logs the newest values, `LoggingMode.ALL` all since the last line.

    Raises:
        ValueError: if both or none of the times are given.
    """

    LoggingMode = IPUOutfeedMode

    def __init__(
        self,
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
        logging_mode: IPUOutfeedMode = IPUOutfeedMode.LAST,
    ) -> None:
        if every_n_iter is not None and every_n_secs is not None:
            raise ValueError("Cannot provide both every_n_iter and every_n_secs")
        periodic = every_n_iter is not None or every_n_secs is not None
        if not periodic and not at_end:
            raise ValueError("Either every_n_iter, every_n_secs or at_end should be provided")
        self._timer = tf1.train.SecondOrStepTimer(every_n_secs, every_n_iter) if periodic else None
        self._log_at_end = at_end
        self._formatter = formatter
        self._outfeed = IPUOutfeedQueue(outfeed_mode=logging_mode)
        self._values: Any = None
        self._runs = 0

    def log(self, tensors: Any) -> tf.Operation:
        """Enqueues tensors for the log, inside a program.

        Args:
            tensors: a dictionary of tensors by name, or one or a list of them, which are logged by their own names.

        Returns:
            An operation that the program has to run: return it, or make something depend on it.

        Raises:
            RuntimeError: if it was called before.
            TypeError: for something that is no tensor.
        """
        if self._outfeed.enqueued:
            raise RuntimeError(
                "Cannot use this hook object's log function more than once. Either enqueue all tensors in a single log "
                "call using a list or dict, or create another hook."
            )
        return self._outfeed.enqueue(_by_name(tensors))

    def begin(self) -> None:
        """Prepares for a session.

        Raises:
            RuntimeError: if no program logs to this hook.
        """
        if not self._outfeed.enqueued:
            raise RuntimeError("This logging hook's outfeed was not enqueued. Did you forget to call the log function?")
        with tf.device("cpu"):
            self._values = self._outfeed.dequeue()
        self._runs = 0

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Logs, if it is time to."""
        if self._timer is not None and self._timer.should_trigger_for_step(self._runs):
            self._log(run_context.session)
        self._runs += 1

    def end(self, session: Any) -> None:
        """Logs the last values if requested. The hook can be used for another session then."""
        if self._log_at_end:
            self._log(session)
        elif self._runs:
            # Elements that were not logged are dropped: another session starts with an empty queue.
            session.run(self._values)
        if self._timer is not None:
            self._timer.reset()

    def _log(self, session: Any) -> None:
        values = session.run(self._values)
        seconds, _ = (None, None) if self._timer is None else self._timer.update_last_triggered_step(self._runs)
        # Scalars look like plain numbers in the line, as they did before NumPy 2.
        with np.printoptions(suppress=True, legacy="1.25"):
            if self._formatter is not None:
                tf_private.log_info(self._formatter(values))
                return
            text = ", ".join(f"{name} = {value}" for name, value in values.items())
        if seconds is None:
            tf_private.log_info("%s", text)
        else:
            tf_private.log_info("%s (%.3f sec)", text, seconds)


def _by_name(tensors: Any) -> dict[str, Any]:
    if isinstance(tensors, dict):
        return tensors
    listed = list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]
    for tensor in listed:
        if not tf.is_tensor(tensor):
            raise TypeError(f"Expected `tf.Tensor`, got {type(tensor)}")
    return {tensor.name: tensor for tensor in listed}
