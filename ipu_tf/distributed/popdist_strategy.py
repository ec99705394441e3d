"""`PopDistStrategy`: strategy for the replicas of all instances of a program."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._state.numbers import next_number
from ipu_tf._strategy.instance_variables import IPUMirroredVariable, IPUSyncOnReadVariable, adopt
from ipu_tf.config import IPUConfig
from ipu_tf.distributed.host_collective_ops import allreduce, broadcast
from ipu_tf.ipu_strategy import IPUStrategyV1
from ipu_tf.popdist import getInstanceIndex, getNumInstances, getNumTotalReplicas, init

__all__ = ["IPUMirroredVariable", "IPUSyncOnReadVariable", "PopDistStrategy"]


class PopDistStrategy(IPUStrategyV1):
    """As `IPUStrategy`, for the replicas of all instances; the process may be the only one.

    Variables start with the values that they have in instance 0. Losses are divided by the number of all replicas, so
    that their gradients, which are summed, are means.

    Args:
        ipu_device: the device, e.g. `/device:IPU:0`.
        add_ipu_cross_replica_reductions: whether `reduce` inside a program reduces over the replicas.
        enable_dataset_iterators: as for `IPUStrategy`.
        enable_keras_extensions: as for `IPUStrategy`.

    Raises:
        InstanceError: as for `popdist.init`.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        init()
        self._number = next_number("PopDistStrategy")
        super().__init__(
            ipu_device,
            enable_dataset_iterators=enable_dataset_iterators,
            enable_keras_extensions=enable_keras_extensions,
        )
        self.extended._add_ipu_cross_replica_reductions = add_ipu_cross_replica_reductions  # noqa: SLF001 - its name

    def update_ipu_config(self, config: IPUConfig) -> None:
        """Sets the number of instances, and which one this is, in a configuration.

        Args:
            config: the configuration, which is changed.
        """
        config.experimental.multi_replica_distribution.process_count = getNumInstances()
        config.experimental.multi_replica_distribution.process_index = getInstanceIndex()

    def given_to_all(self, value: Any, name: str, dtype: Any) -> Any:
        """Returns the initial value that a variable has in instance 0; instances make them in the same order.

        Args:
            value: a tensor, or a function that gives it, as `tf.Variable` takes it.
            name: of the variable.
            dtype: of the variable; None for that of the value.

        Raises:
            tf.errors.UnknownError: if shapes or dtypes differ between the instances.
        """
        if getNumInstances() == 1:
            return value
        number = next_number(f"variables of PopDistStrategy {self._number}")

        def given() -> tf.Tensor:
            own = tf.convert_to_tensor(value() if callable(value) else value, dtype)
            return broadcast(own, tensor_name=f"strategy {self._number}, variable {number} {name}")

        return given

    def note_variable(self, variable: Any) -> None:
        """Makes a new variable an `IPUMirroredVariable` or an `IPUSyncOnReadVariable`.

        Args:
            variable: a `tf.Variable`, but those of Keras.
        """
        adopt(variable, self)

    def read_by_all(self, value: tf.Tensor, reduce_op: tf.distribute.ReduceOp | None, name: str) -> tf.Tensor:
        """Returns what all instances read of a variable of which each has its own value.

        Args:
            value: this instance's.
            reduce_op: `tf.distribute.ReduceOp.SUM` or `MEAN`; None for instance 0's value.
            name: of the variable.

        Raises:
            tf.errors.UnknownError: as for `ipu.distributed.allreduce`.
        """
        if getNumInstances() == 1:
            return value
        what = f"strategy {self._number}, read of {name}"
        return broadcast(value, 0, what) if reduce_op is None else allreduce(value, reduce_op, what)

    def reduced_on_host(self, reduce_op: tf.distribute.ReduceOp, value: Any) -> Any:
        """Sums or averages a value, or a structure of them, over the instances.

        Args:
            reduce_op: `tf.distribute.ReduceOp.SUM` or `MEAN`.
            value: this instance's.

        Raises:
            tf.errors.UnknownError: as for `ipu.distributed.allreduce`.
        """
        if getNumInstances() == 1:
            return value
        return tf.nest.map_structure(lambda each: allreduce(each, reduce_op), value)

    @property
    def reduces_in_programs(self) -> bool:
        """Returns whether `reduce` in a program reduces over its replicas."""
        return bool(self.extended._add_ipu_cross_replica_reductions)  # noqa: SLF001

    @property
    def replicas_in_sync(self) -> int:
        """Returns how many replicas all instances have."""
        return getNumTotalReplicas()
