"""Keras 2's callbacks see the variables of their step: one ahead of them writes back those that the device has."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

from ipu_tf._loops.tensorflow_step import flush_variables

_AFTER_BATCHES = ("on_train_batch_end", "on_test_batch_end", "on_predict_batch_end")
_AFTER_OTHERS = ("on_epoch_begin", "on_epoch_end", "on_test_begin", "on_test_end", "on_train_end", "on_predict_end")


class _SyncsVariables:
    """Marks the callback of this package's among those of a run."""


@contextlib.contextmanager
def variable_sync(arguments: dict[str, Any]) -> Iterator[None]:
    """Context of a run whose callbacks have one ahead that writes variables back.

    Args:
        arguments: of fit, evaluate or predict. `callbacks` are as the user gave them, or a `CallbackList` that `fit`
            hands to `evaluate`, which has that callback already. One of the user's has it until the run ends.
    """
    keras_2, callbacks = importlib.import_module("tf_keras"), arguments.get("callbacks")
    if not isinstance(callbacks, keras_2.callbacks.CallbackList):
        given = [callbacks] if isinstance(callbacks, keras_2.callbacks.Callback) else list(callbacks or ())
        arguments["callbacks"] = [_synced(keras_2, bool(given)), *given]
        yield
        return
    if any(isinstance(each, _SyncsVariables) for each in callbacks.callbacks):
        yield
        return
    synced = _synced(keras_2, after_batches=True)
    callbacks.callbacks.insert(0, synced)
    try:
        yield
    finally:
        callbacks.callbacks.remove(synced)


def _synced(keras_2: Any, after_batches: bool) -> Any:
    hooks = (*_AFTER_OTHERS, *(_AFTER_BATCHES if after_batches else ()))
    synced = type("SyncVariables", (_SyncsVariables, keras_2.callbacks.Callback), dict.fromkeys(hooks, _flush))()
    synced._supports_tf_logs = True  # Keras's own flag of callbacks that leave logs as they are
    return synced


def _flush(self: Any, *args: Any, **kwargs: Any) -> None:
    flush_variables()
