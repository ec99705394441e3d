"""Facts that a run and the one that resumes it must share: versions, model, optimizer, options, data."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from ipu_tf._checkpoints.checkpoint_folder import CheckpointError
from ipu_tf._training.replication import instance_count
from keras_ipu.options.model_state import options_of
from keras_ipu.resume.callback_state import callback_settings
from keras_ipu.stock.arrays import data_facts

_VERSIONS = ("tensorflow", "keras", "jax", "numpy")


def run_facts(model: Any, iterator: Any, callbacks: Sequence[Any], first_epoch: int = 0) -> dict[str, str]:
    """Returns the facts of a `fit`, as texts by names that a user knows.

    Args:
        model: compiled.
        iterator: the epoch iterator over its data.
        callbacks: all but ExactResume.
        first_epoch: the `initial_epoch` of the `fit`.
    """
    facts = {name: importlib.metadata.version(name) for name in _VERSIONS}
    facts |= {
        "Keras back end": keras.backend.backend(),
        "model": _digest(model),
        "optimizer": _digest(model.optimizer),
        "steps_per_execution": str(model.steps_per_execution),
        "steps_per_epoch": str(iterator.steps_per_epoch),
        "replicas": str(iterator.replicas),
        "callbacks": ", ".join(type(callback).__name__ for callback in callbacks),
    }
    for number, callback in enumerate(callbacks):
        facts[f"arguments of callback {number}, {type(callback).__name__}"] = callback_settings(callback)
    if first_epoch:
        facts["initial_epoch"] = str(first_epoch)
    if instance_count() > 1:
        facts["instances"] = str(instance_count())
    facts |= {f"option {name}": value for name, value in _options(model)}
    return facts | {f"data: {name}": str(value) for name, value in data_facts(iterator.data_adapter).items()}


def check_same(before: Mapping[str, str], now: Mapping[str, str], path: Path) -> None:
    """Checks that a checkpoint is of the run that begins.

    Args:
        before: the facts in the checkpoint.
        now: those of the run.
        path: of the checkpoint.

    Raises:
        CheckpointError: if they differ. It names up to five differences.
    """
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not names:
        return
    told = "; ".join(f"{name}: {before.get(name)} in the checkpoint, {now.get(name)} here" for name in names[:5])
    raise CheckpointError(
        f"'{path}' must be a checkpoint of this run. Received: one of another. {told}. Use another folder for another "
        "run, or remove this one to train from the beginning."
    )


def _options(model: Any) -> Iterator[tuple[str, str]]:
    options = options_of(model)
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value is None or isinstance(value, bool | int | float | str):
            yield field.name, str(value)


def _digest(item: Any) -> str:
    """Returns a checksum of the configuration of a model or optimizer, but for names that Keras counts up."""
    kind = type(item).__qualname__
    try:
        config = keras.saving.serialize_keras_object(item)
        names: dict[str, str] = {}
        _collect_names(config, names)
        text = json.dumps(_renamed(config, names), sort_keys=True, default=_kind)
    except (NotImplementedError, TypeError, ValueError):  # a class of the user's that cannot be saved
        text = kind
    return f"{kind} {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _kind(value: Any) -> str:
    return type(value).__qualname__


def _collect_names(config: Any, names: dict[str, str]) -> None:
    if isinstance(config, dict):
        name = config.get("name")
        if isinstance(name, str):
            names.setdefault(name, f"#{len(names)}")
        for value in config.values():
            _collect_names(value, names)
    elif isinstance(config, list | tuple):
        for value in config:
            _collect_names(value, names)


def _renamed(config: Any, names: Mapping[str, str]) -> Any:
    if isinstance(config, dict):
        return {key: _renamed(value, names) for key, value in config.items() if key != "shared_object_id"}
    if isinstance(config, list | tuple):
        return [_renamed(value, names) for value in config]
    return names.get(config, config) if isinstance(config, str) else config
