"""`VariableAccess`: what a back end of Keras gives a run that is to be resumed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ipu_tf._checkpoints.tensorflow_values import Values


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
