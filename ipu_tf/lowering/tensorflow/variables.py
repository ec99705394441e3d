"""Adapter from `tf.Variable` to the device's `HostVariable`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ipu_tf.device.memory.host_variable import Snapshot
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.joint_writes import write_jointly


class TensorFlowVariable:
    """`tf.Variable` as a `HostVariable` of the device; one object for each variable, see `host_variable`."""

    def __init__(self, variable: tf.Variable) -> None:
        self.variable = variable
        self._typed_handle = (variable.handle, tf_values.type_number(variable.dtype))

    @staticmethod
    def snapshots(variables: Sequence[TensorFlowVariable]) -> list[Snapshot]:
        """Reads the variables' values without copies, with the tensors that own the memory.

        While a tensor lives, TensorFlow writes to its variable by giving that other memory.
        """
        tensors = tf_values.read_variables([each._typed_handle for each in variables])  # noqa: SLF001 - its own
        return [(tf_values.tensor_memory(tensor), tensor) for tensor in tensors]

    def share(self) -> None:
        """Makes snapshots share the variable's memory also after a sparse write on the host."""
        tf_values.share_reads(self.variable.handle)

    @staticmethod
    def write_all(variables: Sequence[TensorFlowVariable], values: Sequence[np.ndarray]) -> None:
        """Assigns a value to each."""
        write_jointly([each.variable for each in variables], values)


def host_variable(variable: tf.Variable) -> TensorFlowVariable:
    """Returns the one `TensorFlowVariable` of a variable, whichever Python object of it is given."""
    handle = variable.handle
    found: TensorFlowVariable | None = getattr(handle, "_ipu_tf_host_variable", None)
    if found is None:
        found = TensorFlowVariable(variable)
        handle._ipu_tf_host_variable = found  # noqa: SLF001 - lives as long as the variable
    return found
