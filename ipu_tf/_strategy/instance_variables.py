"""Variables of `PopDistStrategy`: one value in all instances, or one in each that is reduced where it is read."""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from ipu_tf._tracing.unconverted import do_not_convert
from ipu_tf.lowering.tensorflow import tf_graphs
from ipu_tf.lowering.tensorflow.tf_values import ResourceVariable

_REDUCED = {
    tf.VariableAggregation.SUM: tf.distribute.ReduceOp.SUM,
    tf.VariableAggregation.MEAN: tf.distribute.ReduceOp.MEAN,
}
_BETWEEN = ("tensorflow.", "ipu_tf.", "contextlib")


class _OfStrategy(ResourceVariable):
    """Variable that a strategy over several instances made; `_ipu_strategy` is that strategy."""

    _ipu_strategy: Any = None
    _ipu_at_home = False

    @property
    def device(self) -> str:
        """The IPU, whose programs keep the variable; its home copy is on the host."""
        return str(self.handle.device if self._ipu_at_home else self._ipu_strategy.extended.non_slot_devices(None))

    def _serialize_to_tensors(self) -> Any:
        return super(_OfStrategy, self._home())._serialize_to_tensors()

    def _restore_from_tensors(self, restored: Any) -> Any:
        return super(_OfStrategy, self._home())._restore_from_tensors(restored)

    def _home(self) -> _OfStrategy:
        """Returns the variable as checkpoints see it: where its home copy is, on the host."""
        home = object.__new__(type(self))
        home.__dict__.update(self.__dict__, _ipu_at_home=True)
        return home

    def _in_replica(self) -> bool:
        """Returns whether a replica's own code runs here."""
        replica = tf.distribute.get_replica_context()
        ours = replica is not None and replica.strategy is self._ipu_strategy
        return ours or tf_graphs.in_program(tf.compat.v1.get_default_graph())


class IPUMirroredVariable(_OfStrategy):
    """Variable that has one value in all instances, instance 0's at first.

    A replica that assigns to it assigns what all replicas assign, summed or averaged where `aggregation` says so.

    Example:
        >>> import tensorflow as tf
        >>> from ipu_tf.distributed.popdist_strategy import PopDistStrategy
        >>> with PopDistStrategy().scope():
        ...     isinstance(tf.Variable(1.0), IPUMirroredVariable)
        True
    """

    @do_not_convert
    def assign(self, value: Any, *args: Any, **kwargs: Any) -> Any:
        """Assigns a value; see `tf.Variable.assign`."""
        return super().assign(self._of_all(value), *args, **kwargs)

    @do_not_convert
    def assign_add(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        """Adds a value; see `tf.Variable.assign_add`."""
        return super().assign_add(self._of_all(delta), *args, **kwargs)

    @do_not_convert
    def assign_sub(self, delta: Any, *args: Any, **kwargs: Any) -> Any:
        """Subtracts a value; see `tf.Variable.assign_sub`."""
        return super().assign_sub(self._of_all(delta), *args, **kwargs)

    def _of_all(self, value: Any) -> Any:
        reduced = _REDUCED.get(self.aggregation)
        if reduced is None or not self._in_replica():
            return value
        given = tf.convert_to_tensor(value, self.dtype)
        return self._ipu_strategy.extended._reduce_to(reduced, given, self, None)  # noqa: SLF001 - of this package


class IPUSyncOnReadVariable(_OfStrategy):
    """Variable of which each replica has a value of its own; outside of programs one reads those of all instances.

    They are summed or averaged as `aggregation` says, or instance 0's is taken: every instance has to read it then.
    """

    @do_not_convert
    def _read_variable_op(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        own = super()._read_variable_op(*args, **kwargs)
        if self.aggregation is tf.VariableAggregation.NONE or self._in_replica():
            return own
        return self._ipu_strategy.read_by_all(own, _REDUCED.get(self.aggregation), self.name)


def adopt(variable: Any, strategy: Any) -> None:
    """Makes a variable, just made, one of the classes here, by its `synchronization`.

    Keras's variables stay as they are: what they mean over replicas and instances is Keras's part of this package.

    Args:
        variable: what TensorFlow made.
        strategy: in whose scope.
    """
    if type(variable) is not ResourceVariable or _made_by_keras():
        return
    if variable.synchronization is tf.VariableSynchronization.NONE:
        return
    on_read = variable.synchronization is tf.VariableSynchronization.ON_READ
    variable._ipu_strategy = strategy  # noqa: SLF001 - one class in two steps
    variable.__class__ = IPUSyncOnReadVariable if on_read else IPUMirroredVariable


def _made_by_keras() -> bool:
    """Returns whether the first caller outside of TensorFlow and this package is Keras."""
    frame = sys._getframe(1)  # noqa: SLF001 - Python's own way to its callers
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).startswith("keras.")
