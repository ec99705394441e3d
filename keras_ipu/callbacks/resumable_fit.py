"""`resumable`: makes a `fit` with an `ExactResume` callback a run that is saved and resumed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import keras

from ipu_tf._checkpoints.checkpoint_folder import CheckpointError
from ipu_tf._state.context import context_value
from keras_ipu.callbacks.exact_resume import ExactResume
from keras_ipu.options.model_state import options_of
from keras_ipu.resume.data_tracker import current_tracker
from keras_ipu.resume.resumable_run import ResumableRun
from keras_ipu.resume.variable_access import VariableAccess


@contextlib.contextmanager
def resumable(method: str, model: Any, arguments: dict[str, Any], access: VariableAccess) -> Iterator[None]:
    """Context of a `fit`, `evaluate` or `predict`, by name.

    In a `fit` with an `ExactResume` callback that callback knows its run, and becomes the last one in `arguments`.

    Raises:
        CheckpointError: if there are several, or callbacks run beside the device.
    """
    given = arguments.get("callbacks") if method == "fit" else None
    callbacks = given.callbacks if isinstance(given, keras.callbacks.CallbackList) else keras.tree.flatten(given or [])
    resuming = [callback for callback in callbacks if isinstance(callback, ExactResume)]
    if not resuming:
        with context_value(current_tracker, None):
            yield
        return
    _check(model, given, resuming)
    others = [callback for callback in callbacks if callback is not resuming[0]]
    if not any(isinstance(callback, keras.callbacks.History) for callback in others):
        others.append(keras.callbacks.History())  # Keras would call its own after all others
    arguments["callbacks"] = [*others, resuming[0]]
    first_epoch = int(arguments.get("initial_epoch", 0))
    run = ResumableRun(resuming[0].folder, resuming[0].interval, model, others, access, first_epoch)
    with (
        context_value(current_tracker, run.tracker),
        run.termination,
        contextlib.closing(run),
        resuming[0].running(run),
    ):
        yield


def _check(model: Any, given: Any, resuming: Sequence[Any]) -> None:
    if len(resuming) > 1:
        raise CheckpointError(f"`fit` takes one ExactResume. Received: {len(resuming)}.")
    if isinstance(given, keras.callbacks.CallbackList):
        raise CheckpointError("ExactResume has to be in a list of callbacks. Received: a keras.callbacks.CallbackList.")
    if options_of(model).asynchronous_callbacks:
        raise CheckpointError(
            "ExactResume saves between two executions. Received: a model with set_asynchronous_callbacks(True), whose "
            "callbacks run beside them."
        )
