"""`VariableAccess`: what a back end of Keras gives a run that is to be resumed; the values that a run saves by it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ipu_tf._checkpoints.checkpoint_folder import CheckpointError
from ipu_tf._checkpoints.tensorflow_values import Values
from keras_ipu.stock import models as keras_models


class VariableAccess(Protocol):
    """Reads and writes Keras variables of a model that trains on the device."""

    def create_variables(self, model: Any, iterator: Any) -> None:
        """Creates all variables that a training step has."""
        ...

    def read_variables(self, model: Any, variables: Sequence[Any]) -> list[Values]:
        """Returns copies of their newest values."""
        ...

    def write_variables(self, model: Any, variables: Sequence[Any], values: Sequence[Values]) -> None:
        """Assigns values to them, between two executions."""
        ...


def variables_state(model: Any, access: VariableAccess) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the values of all variables of a run for its state, and the weights for stock Keras, by path.

    Args:
        model: the model.
        access: to its variables.
    """
    variables = keras_models.all_variables(model)
    values = access.read_variables(model, variables)
    seed = keras_models.global_seed()
    state = {
        "variables": [
            {"path": variable.path, "values": value} for variable, value in zip(variables, values, strict=True)
        ],
        "global_seed": None if seed is None else access.read_variables(model, [seed])[0],
    }
    known = {id(variable): value for variable, (value, _) in zip(variables, values, strict=True)}
    saved = keras_models.saved_weights(model)
    return state, {path: known[id(value)] if id(value) in known else np.array(value) for path, value in saved}


def restore_variables(model: Any, access: VariableAccess, state: Any, path: Path) -> None:
    """Assigns variables the values that `variables_state` returned.

    Args:
        model: the model.
        access: to its variables.
        state: of the run.
        path: of its folder, for errors.

    Raises:
        CheckpointError: for a model with other variables.
    """
    variables, saved = keras_models.all_variables(model), state["variables"]
    shapes = [(tuple(variable.shape), str(variable.dtype)) for variable in variables]
    wanted = [(one["values"][0].shape, one["values"][0].dtype.name) for one in saved]
    if shapes != wanted:
        raise CheckpointError(
            f"The model must have the {len(wanted)} variables of the checkpoint in '{path}'. Received: "
            f"{len(shapes)} variables, or some of other shapes or dtypes."
        )
    access.write_variables(model, variables, [one["values"] for one in saved])
    if state.get("global_seed") is not None:
        access.write_variables(model, [keras_models.global_seed(make=True)], [state["global_seed"]])
