"""The host's side of TensorFlow variables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ipu_tf.device.residency import Snapshot
from ipu_tf.lowering import tf_values


class TensorFlowVariable:
    """A `tf.Variable` as the device sees it. One object for each variable: see `host_variable`."""

    def __init__(self, variable: tf.Variable) -> None:
        self.variable = variable

    def snapshot(self) -> Snapshot:
        """The present value without a copy, and the tensor that owns its memory.

        While the tensor lives, TensorFlow writes to the variable by giving it other memory.
        """
        with tf_values.eager_mode():
            tensor = self.variable.read_value()
        return tf_values.tensor_memory(tensor), tensor

    def write(self, value: np.ndarray) -> None:
        """Assigns a value."""
        with tf_values.eager_mode():
            self.variable.assign(value)


def snapshots(variables: Sequence[TensorFlowVariable]) -> list[Snapshot]:
    """`snapshot` of each variable, in one read: an execution of a single step asks all variables of a model."""
    tensors = tf_values.read_variables([variable.variable for variable in variables])
    return [(tf_values.tensor_memory(tensor), tensor) for tensor in tensors]


def host_variable(variable: tf.Variable) -> TensorFlowVariable:
    """The one `TensorFlowVariable` of a variable, whichever of the objects for the variable is given."""
    handle = variable.handle
    found: TensorFlowVariable | None = getattr(handle, "_ipu_tf_host_variable", None)
    if found is None:
        found = TensorFlowVariable(variable)
        handle._ipu_tf_host_variable = found  # noqa: SLF001 - lives as long as the variable
    return found
