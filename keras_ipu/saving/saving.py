"""Saves and restores options and stage assignments with models, their copies and clones.

Stock Keras takes no notice of them: a model saved here loads there, without them, and the other way round.

* Functional models and `Sequential`s have them in `get_config()`, under one key that Keras passes over.
* Others, subclassed ones or with a constructor or a `get_config` of their own, which Keras makes anew with all of their
  config as arguments, have them in a file among their assets of a `.keras` file.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import types
from pathlib import Path
from typing import Any

from keras_ipu.options.checks import checked_accumulation_kwargs, checked_pipelining_kwargs
from keras_ipu.options.model_state import ModelState, reset_functions, state_of, update_state
from keras_ipu.options.options import IPUOptions, ReplicatedMetricReductionMethod
from keras_ipu.pipeline.assigned_stages import assigned
from keras_ipu.pipeline.graph import ModelKind, kind_of
from keras_ipu.pipeline.saved_stages import stages_to_save
from keras_ipu.saving.saved_folder import save_in_folder
from keras_ipu.saving.saved_options import STAGES, STAGES_VALID, checked_options
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock.ownership import is_ipu_model

KEY = "ipu_options"
"""Of the config."""
_FILE = "ipu_options.json"
_UNSAVED = {
    "gradient_accumulation_kwargs": ("gradient_accumulation_optimizer_kwargs", "set_gradient_accumulation_options"),
    "pipelining_kwargs": ("pipelining_kwargs", "set_pipelining_options"),
}
_NOT_GIVEN = {
    "gradient_accumulation_kwargs": checked_accumulation_kwargs({}),
    "pipelining_kwargs": checked_pipelining_kwargs({}),
}
"""Options that the rules fill in where the user gave nothing."""
_log = logging.getLogger("ipu_tf")


def options_config(model: Any) -> dict[str, Any]:
    """A model's options and pipeline stages as plain data; empty if all are the defaults."""
    _warn_unsaved(model)
    state, default = state_of(model), IPUOptions()
    config = {
        field.name: _plain(getattr(state.options, field.name))
        for field in dataclasses.fields(IPUOptions)
        if field.name not in _UNSAVED and getattr(state.options, field.name) != getattr(default, field.name)
    }
    stages = stages_to_save(assigned(model)) if state.saved_stages is None else state.saved_stages
    if stages or state_of(model).assignment_valid:
        config[STAGES] = stages
        config[STAGES_VALID] = state_of(model).assignment_valid
    return config


def restore_options(model: Any, config: dict[str, Any]) -> None:
    """Sets a model's options from the result of `options_config`.

    Raises:
        ValueError: if they are not of the form that is saved.
    """
    options = checked_options(config, model.name)
    stages, valid = options.pop(STAGES, None), options.pop(STAGES_VALID, False)
    update_state(
        model,
        options=IPUOptions(**{name: _unplain(name, value) for name, value in options.items()}),
        saved_stages=stages,
        assignment=(),
        assignment_valid=valid,
    )
    reset_functions(model)


def copy_options(model: Any, clone: Any) -> None:
    """Copies a model's options to its clone, including those that are not saved in files."""
    if is_ipu_model(model) and is_ipu_model(clone) and state_of(model) != ModelState():
        restore_options(clone, options_config(model))
        update_state(clone, options=state_of(model).options)


def get_config(stock: Any, model: Any) -> dict[str, Any]:
    """Replaces `get_config` of functional and sequential IPU models."""
    config: dict[str, Any] = stock(model)
    carries = kind_of(model) is ModelKind.SEQUENTIAL or keras_graphs.has_functional_constructor(model)
    if carries and (options := options_config(model)):
        config[KEY] = options
    return config


def from_config(stock: Any, cls: type, config: dict[str, Any], custom_objects: Any) -> Any:
    """Replaces `from_config` of Keras's models: outside of a scope the options are dropped."""
    options = config.get(KEY)
    model = stock(cls, {name: value for name, value in config.items() if name != KEY}, custom_objects)
    if options and is_ipu_model(model):
        restore_options(model, options)
    return model


def save_assets(model: Any, folder: str) -> None:
    """Writes a model's options among its assets, if there are any and its config has no place for them."""
    carried = kind_of(model) is not ModelKind.SUBCLASSED and KEY in model.get_config()
    if not carried and (options := options_config(model)):
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / _FILE).write_text(json.dumps(options))


def load_assets(model: Any, folder: str | None) -> None:
    """Reads the options that `save_assets` wrote."""
    path = Path(folder or ".") / _FILE
    if folder and path.is_file():
        try:
            options = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"The saved IPU options of '{model.name}' are no JSON: {error}. Save it again.") from error
        restore_options(model, options)


def save(stock: Any, model: Any, filepath: Any, *args: Any, **kwargs: Any) -> Any:
    """Replaces `save` of IPU models: a path without an extension names a folder, as it did in Keras 2."""
    if not Path(str(filepath)).suffix and not args and not kwargs.keys() & {"zipped", "save_format"}:
        return save_in_folder(stock, model, filepath, **kwargs)
    return stock(model, filepath, *args, **kwargs)


def _warn_unsaved(model: Any) -> None:
    for name, (argument, method) in _UNSAVED.items():
        if dict(getattr(state_of(model).options, name)) not in ({}, _NOT_GIVEN[name]):
            _log.info(
                "Calling get_config() on %s - `%s` cannot be serialized and you will need to call `%s` again if the "
                "model is restored.",
                model.name,
                argument,
                method,
            )


def _plain(value: Any) -> Any:
    if isinstance(value, ReplicatedMetricReductionMethod):
        return value.name
    if isinstance(value, types.MappingProxyType):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _unplain(name: str, value: Any) -> Any:
    if name == "replicated_metric_reduction":
        return ReplicatedMetricReductionMethod.parse(value)
    if isinstance(value, dict):
        return types.MappingProxyType(dict(value))
    return tuple(value) if isinstance(value, list) else value
