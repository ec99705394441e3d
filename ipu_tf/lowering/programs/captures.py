"""`Captures`: captured variables and tensors of a lowered function, and their values on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.trace import Lowered
from ipu_tf.lowering.tensorflow.variables import TensorFlowVariable, host_variable


class Captures:
    """Captures of a lowered function.

    Args:
        lowered: the function.

    Attributes:
        variables: the variables among them.
    """

    def __init__(self, lowered: Lowered) -> None:
        self._values: list[TensorFlowVariable | np.ndarray] = [
            host_variable(capture) if isinstance(capture, tf.Variable) else tf_values.tensor_memory(capture)
            for capture in lowered.captures
        ]
        self.variables = [value for value in self._values if isinstance(value, TensorFlowVariable)]
        self._places = [place for place, value in enumerate(self._values) if isinstance(value, TensorFlowVariable)]
        first = len(lowered.inputs)
        self._written = {result: parameter - first for result, parameter in lowered.module.aliases.items()}
        written = set(self._written.values())
        self._only_read = [place not in written for place in self._places]

    def acquire(self, replicas: Replicas, homes: Sequence[Replicas | None] = ()) -> list[Any]:
        """Returns the captures' values on the device, in order; variables by `RESIDENCY.acquire_all`.

        Args:
            replicas: of the program.
            homes: for each parameter of the program where it lives, as `Executable.homes` has it; the captures are the
                last.
        """
        where = list(homes)[len(homes) - len(self._values) :] if homes else [None] * len(self._values)
        homes = [where[place] for place in self._places]
        buffers = RESIDENCY.acquire_all(self.variables, replicas, homes, self._only_read)
        values: list[Any] = list(self._values)
        for place, buffer in zip(self._places, buffers, strict=True):
            values[place] = buffer
        return values

    def commit(self, results: Mapping[int, jax.Array] | Sequence[jax.Array]) -> None:
        """Stores the new values of the variables that the function changes.

        Args:
            results: new values by the index of the result of the lowered module that they are.
        """
        for result, position in self._written.items():
            variable = self._values[position]
            assert isinstance(variable, TensorFlowVariable)
            RESIDENCY.commit(variable, results[result])

    def flush(self) -> None:
        """Writes new values back to the host."""
        RESIDENCY.flush(self.variables)

    def recover(self) -> None:
        """Recovers the variables after a failed execution."""
        RESIDENCY.recover(self.variables)
