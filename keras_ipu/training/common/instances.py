"""Models in several instances: they start from the values that instance 0 has, and instance 0 alone shows progress."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ipu_tf import distributed
from ipu_tf._state.registry import register_state
from ipu_tf._training.replication import instance_count, instance_index

_shared: weakref.WeakSet[Any] = register_state("models with the values of instance 0", weakref.WeakSet())


def share_initial_values(model: Any) -> None:
    """Gives the variables of a model that is built the values that they have in instance 0, once.

    Every instance makes its models with initial values of its own, which differ without a common seed. Models are
    matched by their names, those of one name by the order in which instances first train them.

    Raises:
        tf.errors.UnknownError: if their variables have other shapes or dtypes in another instance.
    """
    if instance_count() == 1 or not model.built or model in _shared:
        return
    _shared.add(model)
    for place, variable in enumerate(model.variables):
        if np.issubdtype(np.dtype(variable.dtype) if variable.dtype != "bfloat16" else np.float32, np.number):
            value = distributed.broadcast(np.asarray(variable), 0, tensor_name=f"{model.name}, variable {place}")
            variable.assign(np.asarray(value))


def show_progress_once(arguments: dict[str, Any]) -> None:
    """Changes the arguments of `fit`, `evaluate` or `predict`: no progress in all instances but the first."""
    if instance_count() > 1 and instance_index() > 0:
        arguments["verbose"] = 0
