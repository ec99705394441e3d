"""`Captures`: captured variables and tensors of a lowered function, and their values on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import tensorflow as tf

from ipu_tf.device.memory.claim import Claim
from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.device.run.executable import Executable
from ipu_tf.device.run.interrupts import check_interrupts
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.trace import Lowered
from ipu_tf.lowering.tensorflow.variables import TensorFlowVariable, host_variable


class Captures:
    """Captures of a lowered function. One execution at a time acquires them, and commits or recovers.

    Args:
        lowered: the function.

    Attributes:
        variables: the variables among them.
        claim: what the present execution does with them.
    """

    def __init__(self, lowered: Lowered) -> None:
        self._values: list[TensorFlowVariable | np.ndarray] = [
            host_variable(capture) if isinstance(capture, tf.Variable) else tf_values.tensor_memory(capture)
            for capture in lowered.captures
        ]
        self.variables = [value for value in self._values if isinstance(value, TensorFlowVariable)]
        self._places = [place for place, value in enumerate(self._values) if isinstance(value, TensorFlowVariable)]
        at, first = dict(zip(self._places, self.variables, strict=True)), len(lowered.inputs)
        self._written = {result: at[parameter - first] for result, parameter in lowered.module.aliases.items()}
        self._writes = frozenset(map(id, self._written.values()))
        self._only_read = [id(each) not in self._writes for each in self.variables]
        self._reads = frozenset(map(id, self.variables)) - self._writes
        self._names = {id(each): each.variable.name.partition(":")[0] for each in self.variables}
        self.claim = Claim(self._reads, self._writes)
        self._shapes = {
            place: tuple(lowered.module.parameters[first + place].shape)
            for place, capture in enumerate(lowered.captures)
            if isinstance(capture, tf.Variable) and not capture.shape.is_fully_defined()
        }

    def have_their_shapes(self) -> bool:
        """Returns whether variables of unknown shape have those on the host that the function was lowered for."""
        if not self._shapes:
            return True
        values = [self._values[place] for place in self._shapes]
        variables = [value for value in values if isinstance(value, TensorFlowVariable)]
        found = [seen.shape for seen, _ in TensorFlowVariable.snapshots(variables)]
        return found == list(self._shapes.values())

    @property
    def count(self) -> int:
        """How many captures there are."""
        return len(self._values)

    def acquire(self, executable: Executable) -> list[Any]:
        """Returns the captures' values on the device, in order; variables by `RESIDENCY.acquire_all`.

        Waits until no other execution computes with the variables that the function changes. They are the execution's
        until `commit` or `recover`.

        Args:
            executable: of the program, of which the captures are the last parameters.

        Raises:
            VariablesInUseError: another execution keeps them, and waits for data.
            ValueError: for a variable of unknown shape that has another one than when the function was lowered.
        """
        program = executable.program
        donates, calls_host = not program.keeps_state, program.uses_callbacks
        self.claim = Claim(self._reads, self._writes, donates, calls_host, self._names.__getitem__)
        RESIDENCY.claims.take(self.claim, check_interrupts)
        try:
            buffers = self.buffers(executable)
            self._check_shapes(buffers, executable.replicas)
        except BaseException:
            RESIDENCY.claims.release(self.claim)
            raise
        return list((dict(enumerate(self._values)) | buffers).values())

    def _check_shapes(self, buffers: Mapping[int, jax.Array], replicas: Replicas) -> None:
        for place, shape in self._shapes.items():
            now = buffers[place].shape[replicas.count > 1 :]
            if now != shape:
                variable = self._values[place]
                assert isinstance(variable, TensorFlowVariable)
                raise ValueError(
                    f"The program was compiled for the shape {list(shape)} of the variable `{variable.variable.name}`, "
                    f"which has the shape {list(now)} now. Programs have fixed shapes: assign values of one shape."
                )

    def buffers(self, executable: Executable) -> dict[int, jax.Array]:
        """Returns the variables' present values on the device by their places, for the execution that has them."""
        homes = executable.homes()
        where = homes[len(homes) - len(self._values) :] if homes else (None,) * len(self._values)
        given = executable.replicas, [where[place] for place in self._places], self._only_read
        return dict(zip(self._places, RESIDENCY.acquire_all(self.variables, *given, self.claim), strict=True))

    def commit(self, results: Mapping[int, jax.Array] | Sequence[jax.Array], flush: bool = False) -> None:
        """Stores the new values of the variables that the function changes, and ends the execution's claim on them.

        Args:
            results: new values by the index of the result of the lowered module that they are.
            flush: whether to write them back to the host.
        """
        try:
            self.store(results)
            if flush:
                RESIDENCY.flush(self.variables, self.claim)
        finally:
            RESIDENCY.claims.release(self.claim)

    def store(self, results: Mapping[int, jax.Array] | Sequence[jax.Array]) -> None:
        """Stores new values of the variables, as `commit` does, in the middle of an execution."""
        values = [results[result] for result in self._written]
        RESIDENCY.commit(list(self._written.values()), values, self.claim)

    def flush(self) -> None:
        """Writes new values back to the host."""
        RESIDENCY.flush(self.variables)

    def recover(self) -> None:
        """Recovers the variables after a failed execution, and ends its claim on them."""
        try:
            if self._writes and RESIDENCY.claims.holds(self.claim):
                RESIDENCY.recover(self.variables, self.claim)
        finally:
            RESIDENCY.claims.release(self.claim)
