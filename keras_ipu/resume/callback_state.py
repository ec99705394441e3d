"""Reads and restores what callbacks remember from one step to the next."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Sequence
from typing import Any

import keras

from ipu_tf._checkpoints.checkpoint_folder import CheckpointError
from ipu_tf._checkpoints.plain_data import NotPlainError, encoded

_log = logging.getLogger("ipu_tf")
_OF_KERAS = frozenset({"_model", "params", "validation_data", "model"})
_WITHOUT_STATE = (keras.callbacks.CSVLogger, keras.callbacks.LambdaCallback, keras.callbacks.ProgbarLogger)
"""Have files, functions or a terminal, and nothing that a run depends on."""
_ANYWHERE = frozenset({"filepath", "log_dir", "filename", "path", "root", "verbose"})
"""Arguments of Keras's callbacks that say where they write, and how much: they may differ between two starts."""
_SETTINGS = (bool, int, float, str, type(None))
_MONITORS = (keras.callbacks.EarlyStopping, keras.callbacks.ModelCheckpoint, keras.callbacks.ReduceLROnPlateau)
"""Of these Keras changes the sign of `min_delta` at the end of the first epoch, if less is better."""


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Checks that all that callbacks remember can be saved.

    Args:
        callbacks: after their `on_train_begin`.

    Raises:
        CheckpointError: for a callback whose attributes are no plain data, and that has no `get_state`.
    """
    for callback in callbacks:
        callback_state(callback)
        name = type(callback).__name__
        if isinstance(callback, keras.callbacks.BackupAndRestore):
            raise CheckpointError("A run is resumed by ExactResume or by BackupAndRestore. Received: both.")
        if isinstance(callback, keras.callbacks.CSVLogger) and not callback.append:
            _log.warning(
                "ipu_tf: CSVLogger begins '%s' anew when a run is resumed, unless append=True.", callback.filename
            )
        if isinstance(callback, keras.callbacks.LambdaCallback):
            _log.warning("ipu_tf: what functions of a %s change outside of it is not in checkpoints.", name)


def callback_state(callback: Any) -> Any:
    """Returns what a callback remembers: what its `get_state()` returns, else its attributes that are plain data.

    Raises:
        CheckpointError: as `check_callbacks` says.
    """
    if hasattr(callback, "get_state"):
        return _checked(callback, "get_state()", callback.get_state())
    if isinstance(callback, _WITHOUT_STATE):
        return {}
    known = {name: value for name, value in vars(callback).items() if name not in _OF_KERAS}
    if _is_kerass(callback):
        given = _arguments(callback)  # those of the program that goes on are its own
        return {name: value for name, value in known.items() if name not in given and _is_plain(value)}
    data = {name: value for name, value in known.items() if not _is_code(value)}
    return {name: _checked(callback, name, value) for name, value in data.items()}


def callback_settings(callback: Any) -> str:
    """Returns arguments that a callback was made with, as text: numbers, strings and None that it keeps as attributes.

    Not those that say where one of Keras's callbacks writes, nor those of a callback that has a `get_state`.

    >>> callback_settings(keras.callbacks.ModelCheckpoint("best.keras", save_freq=3)).split(", ")[:2]
    ["monitor='val_loss'", 'save_best_only=False']
    """
    if hasattr(callback, "get_state"):
        return ""
    left_out = _ANYWHERE if _is_kerass(callback) else ()
    values = {name: getattr(callback, name, ...) for name in _arguments(callback) if name not in left_out}
    if isinstance(callback, _MONITORS) and "min_delta" in values:
        values["min_delta"] = abs(callback.min_delta)
    return ", ".join(f"{name}={value!r}" for name, value in values.items() if isinstance(value, _SETTINGS))


def restore_callback(callback: Any, state: Any) -> None:
    """Sets a callback to what `callback_state` returned."""
    if hasattr(callback, "set_state"):
        callback.set_state(state)
        return
    if isinstance(callback, _MONITORS) and "min_delta" in state:
        # The sign is that of this process, in which Keras has changed it or is going to.
        state = {**state, "min_delta": math.copysign(state["min_delta"], callback.min_delta)}
    vars(callback).update(state)


def _is_kerass(callback: Any) -> bool:
    return type(callback).__module__.startswith("keras.")


def _arguments(callback: Any) -> list[str]:
    return list(inspect.signature(type(callback)).parameters)


def _is_code(value: Any) -> bool:
    return inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)


def _is_plain(value: Any) -> bool:
    try:
        encoded(value, [])
    except NotPlainError:
        return False
    return True


def _checked(callback: Any, name: str, value: Any) -> Any:
    try:
        encoded(value, [])
    except NotPlainError as error:
        raise CheckpointError(
            f"A callback's attributes must be numbers, strings, NumPy arrays, or lists, tuples and dictionaries of "
            f"such, to be in a checkpoint. Received: {name} of {type(callback).__name__}, with an object of type "
            f"{error}. Give the callback methods `get_state()`, which returns such data, and `set_state(state)`."
        ) from None
    return value
