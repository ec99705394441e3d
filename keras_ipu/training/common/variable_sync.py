"""Callbacks that are added to the user's: variables are written back to the host before others read them.

While a model trains its variables live on the device. Keras's own progress bar and history only look at the logs; any
other callback may read weights, optimizers or metrics, so they are written back to the host before it runs.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras

from ipu_tf._loops.tensorflow_step import flush_variables
from ipu_tf._state.context import context_value
from keras_ipu.callbacks.exact_resume import ExactResume
from keras_ipu.stock import models as keras_models


class BatchesInOrder(keras.callbacks.Callback):
    """Callback that has Keras call all callbacks for batches in the thread of its loop, one batch after the other.

    If every callback has hooks of epochs only, Keras calls its progress bar in a pool of threads, lest it wait for the
    device: a bar may show batch 18 before 17 there. The logs of a device loop are on the host already.
    """

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Is overridden, which is what Keras looks at."""

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """As for training."""

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """As for training."""


#: Look at logs only, or see to variables themselves; a subclass may do more.
_LOGS_ONLY = (
    keras.callbacks.History,
    keras.callbacks.ProgbarLogger,
    keras.callbacks.CSVLogger,
    keras.callbacks.TerminateOnNaN,
    ExactResume,  # reads variables itself
    BatchesInOrder,
)
#: Have hooks for batches, in which they do nothing if they save at the ends of epochs.
_SAVERS = (keras.callbacks.ModelCheckpoint, keras.callbacks.BackupAndRestore)
_BATCH_HOOKS = (
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_batch_begin",
    "on_batch_end",
    "on_test_batch_begin",
    "on_test_batch_end",
    "on_predict_batch_begin",
    "on_predict_batch_end",
)


#: Whether callbacks run beside an execution, and see variables as they were when it began.
_held: contextvars.ContextVar[bool] = contextvars.ContextVar("ipu_view_held", default=False)


class SyncVariablesEachEpoch(keras.callbacks.Callback):
    """Callback that writes variables back to the host before epoch callbacks run."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Before callbacks at the start of an epoch."""
        flush_variables()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Before callbacks at the end of an epoch."""
        flush_variables()

    def on_test_begin(self, logs: Any = None) -> None:
        """Before callbacks at the start of an evaluation."""
        flush_variables()

    def on_test_end(self, logs: Any = None) -> None:
        """Before callbacks at the end of an evaluation."""
        flush_variables()

    def on_train_end(self, logs: Any = None) -> None:
        """Before callbacks at the end of fit."""
        flush_variables()

    def on_predict_end(self, logs: Any = None) -> None:
        """Before callbacks at the end of predict."""
        flush_variables()


class SyncVariablesEachBatch(SyncVariablesEachEpoch):
    """Callback that writes variables back to the host before batch callbacks run, too."""

    def show(self) -> None:
        """Writes the model's variables back to the host."""
        flush_variables()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Before callbacks at the end of a batch of training."""
        self._show()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Before callbacks at the end of a batch of an evaluation."""
        self._show()

    def on_predict_batch_end(self, batch: int, logs: Any = None) -> None:
        """Before callbacks at the end of a batch of a prediction."""
        self._show()

    def _show(self) -> None:
        if not _held.get():
            self.show()


@contextlib.contextmanager
def variables_synced(model: Any, arguments: dict[str, Any], batch_view: type[SyncVariablesEachBatch]) -> Iterator[bool]:
    """Context of a run with callbacks ahead of the user's, one of which syncs variables.

    A `keras.callbacks.CallbackList` is given that callback itself, with its model, which Keras sets in lists of its own
    only: fit hands its own to evaluate. Its batches come in order, as `BatchesInOrder` has them come elsewhere. After
    the run it is taken out again: the next run may be of another model, or need another one.

    Args:
        model: that runs.
        arguments: of fit, evaluate or predict, whose callbacks it changes.
        batch_view: the callback that syncs variables where callbacks look at batches.

    Yields:
        Whether any callback but Keras's own is called for batches.
    """
    given = arguments.get("callbacks")
    own_list = given.callbacks if isinstance(given, keras.callbacks.CallbackList) else None
    callbacks = own_list if own_list is not None else keras.tree.flatten(given) if given else []
    watched, views = any(map(reads_variables_each_batch, callbacks)), _views(callbacks, batch_view)
    if own_list is None:
        arguments["callbacks"] = [BatchesInOrder(), *views, *callbacks]
        yield watched
        return
    keras_models.call_in_order(given)
    for view in views:
        view.set_model(model)
    own_list[:0] = views
    try:
        yield watched
    finally:
        own_list[:] = [callback for callback in own_list if callback not in views]


def _views(callbacks: list[Any], batch_view: type[SyncVariablesEachBatch]) -> list[Any]:
    """Returns the callback to add that syncs variables for others; none where there is one, or where none may look."""
    curious = [callback for callback in callbacks if type(callback) not in _LOGS_ONLY]
    if not curious or any(isinstance(callback, SyncVariablesEachEpoch) for callback in callbacks):
        return []
    return [batch_view() if any(map(reads_variables_each_batch, curious)) else SyncVariablesEachEpoch()]


def suspend_variable_sync() -> contextlib.AbstractContextManager[None]:
    """Context in which batch callbacks see the host's copies of variables, without write-back."""
    return context_value(_held, True)


def sync_variables(callbacks: list[Any]) -> bool:
    """Writes variables back if any of these callbacks may read them at batches; returns whether."""
    views = [callback for callback in callbacks if isinstance(callback, SyncVariablesEachBatch)]
    for view in views:
        view.show()
    return bool(views)


def reads_variables_each_batch(callback: keras.callbacks.Callback) -> bool:
    """Returns whether a callback may read variables at batches; Keras's own progress bar only shows logs."""
    if type(callback) in (keras.callbacks.ProgbarLogger, BatchesInOrder, ExactResume):
        return False
    if type(callback) in _SAVERS and getattr(callback, "save_freq", None) == "epoch":
        return False
    return any(_is_own(callback, name) for name in _BATCH_HOOKS)


def _is_own(callback: keras.callbacks.Callback, name: str) -> bool:
    """Returns whether a callback defines this hook: in its class, or, like a `LambdaCallback`, in the object."""
    hook = getattr(callback, name)
    return getattr(hook, "__func__", hook) is not getattr(keras.callbacks.Callback, name)
