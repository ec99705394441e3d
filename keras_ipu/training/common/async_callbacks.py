"""Asynchronous callbacks (`set_asynchronous_callbacks(True)`): called for each step while the device runs.

    device        step 0 | step 1         | step 2         | ...
    own thread           | begin, end (0) | begin, end (1) | ...
    Keras's loop  begin ............. waits for both ............. end      both left out

Keras's own two calls for an execution are left out. Those for batches that fill no step come in the thread of Keras's
loop, once for each, when they have run. What callbacks see of the model's variables is what they were when the
execution began: the device keeps them until it ends. What callbacks write into variables counts from the next
execution on; so does `stop_training`.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import keras

from ipu_tf._loops.step_loop import StepLoopResult
from ipu_tf._state.context import context_value
from keras_ipu.options.model_state import options_of
from keras_ipu.options.options import ReplicatedMetricReductionMethod as Method
from keras_ipu.pipeline.run_checks import accumulates_outfeed
from keras_ipu.stock import patches as keras_patches
from keras_ipu.training.common.outputs_for_keras import ArrayFunctions, reduce_replica_logs
from keras_ipu.training.common.variable_sync import suspend_variable_sync, sync_variables

_KINDS = {"fit": "train", "evaluate": "test", "predict": "predict"}

#: The run of Keras's loop in this thread. Where callbacks of steps are called there is none, so their calls go through.
_current: contextvars.ContextVar[AsynchronousRun | None] = contextvars.ContextVar("ipu_async_run", default=None)


class AsynchronousRun:
    """One `fit`, `evaluate` or `predict` whose callbacks are called for every step.

    Args:
        model: the model.
        doing: "fit", "evaluate" or "predict".
        replicas: how many there are: a step has a call for each.
        arrays: functions on the arrays that steps return.

    Attributes:
        looked_at: whether callbacks of the execution at hand may look at the model's variables.
    """

    def __init__(self, model: Any, doing: str, replicas: int, arrays: ArrayFunctions) -> None:
        self.model = model
        self.looked_at = False
        self._arrays = arrays
        self._kind = _KINDS[doing]
        self._replicas = replicas
        self._method = options_of(model).log_reduction
        self._callbacks: Any = None
        self._next = 0

    def begin(self, callbacks: Any, step: int) -> None:
        """Begins an execution.

        Args:
            callbacks: Keras's `CallbackList`.
            step: its first step, counted for one replica.
        """
        self._callbacks = callbacks
        self._next = step * self._replicas
        self.looked_at = sync_variables(callbacks.callbacks)

    def on_step(self, outputs: Any) -> None:
        """Calls the callbacks for one step on each replica.

        Args:
            outputs: logs or predictions of the step; with several replicas they have a dimension of replicas.
        """
        if self._predicts or self._method is Method.NONE:
            for replica in range(self._replicas):
                self._call(self._of_replica(outputs, replica))
            return
        reduced = self._reduced(outputs)
        for _ in range(self._replicas):
            self._call(reduced)

    def on_remainder(self, ran: StepLoopResult) -> StepLoopResult:
        """Calls the callbacks once for each batch that fills no step; with several replicas each has computed it.

        Args:
            ran: result of a remainder, whose outputs are those of each batch.

        Returns:
            The result; with what a callback raised as its error, so that its state is not lost.
        """
        try:
            for outputs in ran.outputs if ran.steps else ():
                self._call(self._of_replica(outputs, 0) if self._predicts else self._reduced(outputs))
        except BaseException as error:
            return ran if ran.error is not None else dataclasses.replace(ran, error=error)
        return ran

    @property
    def _predicts(self) -> bool:
        return self._kind == "predict"

    def _of_replica(self, outputs: Any, replica: int) -> Any:
        own = operator.itemgetter(replica)
        return outputs if self._replicas == 1 else self._arrays.map_structure(own, outputs)

    def _reduced(self, logs: Any) -> Any:
        return reduce_replica_logs(logs, self._replicas, self._method, self._arrays)

    def _call(self, outputs: Any) -> None:
        logs = {"outputs": outputs} if self._predicts else outputs
        # The execution may be over by now, for the thread may be late: what callbacks see shall not depend on that.
        # In the thread of Keras's loop its own two calls are left out, but not these.
        with suspend_variable_sync(), context_value(_current, None):
            getattr(self._callbacks, f"on_{self._kind}_batch_begin")(self._next)
            getattr(self._callbacks, f"on_{self._kind}_batch_end")(self._next, logs)
        self._next += 1


def asynchronous(
    model: Any, doing: str, replicas: int, arrays: ArrayFunctions
) -> contextlib.AbstractContextManager[None]:
    """Context in which `current_run()` is the run with asynchronous callbacks, if they are set.

    Args:
        model: the model that runs.
        doing: "fit", "evaluate", "predict", or the name of another method, whose callbacks never are.
        replicas: how many replicas it runs as.
        arrays: functions on the arrays that its steps return.
    """
    wanted = doing in _KINDS and options_of(model).asynchronous_callbacks
    if doing != "predict" and accumulates_outfeed(model):
        wanted = False  # there are no logs of single steps
    if wanted:
        _install()
    return context_value(_current, AsynchronousRun(model, doing, replicas, arrays) if wanted else None)


def current_run() -> AsynchronousRun | None:
    """Returns this thread's run if its callbacks are asynchronous, else None."""
    return _current.get()


def _install() -> None:
    for kind in _KINDS.values():
        for edge, ours in (("begin", _begin), ("end", _end)):
            keras_patches.patch_method(keras.callbacks.CallbackList, f"on_{kind}_batch_{edge}", _is_current, ours)


def _is_current(callbacks: Any) -> bool:
    run = _current.get()
    # A list that the user made may not know its model; a callback may fit another model, with a list of its own.
    return run is not None and getattr(callbacks, "model", None) in (None, run.model)


def _begin(stock: Callable[..., Any], callbacks: Any, batch: int, logs: Any = None) -> None:
    run = _current.get()
    assert run is not None
    run.begin(callbacks, batch)


def _end(stock: Callable[..., Any], callbacks: Any, batch: int, logs: Any = None) -> None:
    """Ends an execution: the callbacks of its steps were all called."""
