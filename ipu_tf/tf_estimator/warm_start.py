"""Warm-starts variables from a checkpoint."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import tensorflow as tf

tf1 = tf.compat.v1


class WarmStartSettings(NamedTuple):
    """Variables to warm-start, and the checkpoint to start them from.

    Attributes:
        ckpt_to_initialize_from: a checkpoint, or the folder of some: the newest counts.
        vars_to_warm_start: a regular expression for names of trainable variables, or a list of names or variables.
        var_name_to_vocab_info: by variable name, a `tf.compat.v1.train.VocabInfo`.
        var_name_to_prev_var_name: by variable name, the name in the checkpoint where it is another.
    """

    ckpt_to_initialize_from: str
    vars_to_warm_start: Any = ".*"
    var_name_to_vocab_info: dict[str, Any] | None = None
    var_name_to_prev_var_name: dict[str, str] | None = None


def warm_start_settings(source: Any) -> WarmStartSettings | None:
    """Resolves the argument `warm_start_from` of an estimator.

    Args:
        source: None, settings, or the path of a checkpoint, a folder of checkpoints or a SavedModel.

    Raises:
        ValueError: for anything else.
    """
    if source is None or isinstance(source, WarmStartSettings):
        return source
    if not isinstance(source, (str, os.PathLike)):
        raise ValueError(f"warm_start_from must be a string or a WarmStartSettings, instead got {type(source)}")
    path = os.fspath(source)
    if tf1.saved_model.contains_saved_model(path):
        path = os.path.join(path, tf1.saved_model.constants.VARIABLES_DIRECTORY, "variables")
    return WarmStartSettings(path)


def warm_start(settings: WarmStartSettings) -> None:
    """Initialises variables of the current graph from a checkpoint.

    Raises:
        ValueError: if the checkpoint lacks one of them.
    """
    tf1.train.warm_start(*settings)
