"""Weight updates that the steps of a remainder ask for and that are made later, with the gradients of other batches.

judge.apply(...)                  put off: this batch's gradients are only added up
loss = f(judge.weights)           reads weights that are not updated yet
forger.apply(d loss)              refused: no such gradient is the one that the step means
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.emulation import EmulationError
from keras_ipu.training.common.update_sums import optimizer_name


class PutOffUpdates:
    """Updates that the step of one batch has put off so far.

    Args:
        model: its name, for errors.
        batches: of the remainder.
    """

    def __init__(self, model: str, batches: int) -> None:
        self._model = model
        self._batches = batches
        self._updates: list[_PutOff] = []

    def add(self, optimizer: Any, variables: Iterable[Any] | None) -> None:
        """Notes that an optimizer's update of variables is put off; None for those that it was built with."""
        if self._batches > 1:
            self._updates.append(_PutOff(optimizer, _updated(optimizer, variables)))

    def check(self, optimizer: Any, gradients: Sequence[Any]) -> None:
        """Checks that the gradients of a further call do not depend on an update that is put off.

        Raises:
            EmulationError: if they do.
        """
        for update in self._updates:
            if update.is_read_by(gradients):
                raise EmulationError(
                    f"The last {self._batches} batches make one weight update of {self._model}, whose `train_step` "
                    "calls several optimizers, or one several times. Expected gradients that are computed from the "
                    f"weights before the first of these calls. Received for {optimizer_name(optimizer)} gradients that "
                    f"depend on weights which {optimizer_name(update.optimizer)} has updated before, in the same "
                    "step: that update is made once the gradients of all batches are there. Compute all gradients "
                    "before the first call, or train on data whose batches go round, such as `batch(size, "
                    "drop_remainder=True)` with a multiple of the replicas. See docs/partial_batches.md."
                )


class _PutOff:
    """An update that is put off, at this point of the trace.

    Args:
        optimizer: the optimizer.
        variables: those that it would have updated.
    """

    def __init__(self, optimizer: Any, variables: Sequence[Any]) -> None:
        self.optimizer = optimizer
        self._handles = {id(_handle(variable)) for variable in variables}
        self._graph = tf.compat.v1.get_default_graph()
        self._before = {operation.name for operation in self._graph.get_operations()}

    def is_read_by(self, gradients: Sequence[Any]) -> bool:
        """Returns whether tensors depend on a variable as it was read after this point."""
        tensors = filter(tf.is_symbolic_tensor, tf.nest.flatten(list(gradients), expand_composites=True))
        found = {tensor.op.name: tensor.op for tensor in tensors if self._is_late(tensor.op)}
        waiting = list(found.values())
        while waiting:
            inputs = waiting.pop().inputs
            if any(tensor.dtype == tf.resource and id(_outermost(tensor)) in self._handles for tensor in inputs):
                return True
            late = {each.op.name: each.op for each in inputs if each.op.name not in found and self._is_late(each.op)}
            found |= late
            waiting += late.values()
        return False

    def _is_late(self, operation: tf.Operation) -> bool:
        return operation.graph is not self._graph or operation.name not in self._before


def _updated(optimizer: Any, variables: Iterable[Any] | None) -> list[Any]:
    return list(getattr(optimizer, "_trainable_variables", ()) if variables is None else variables)


def _handle(variable: Any) -> Any:
    return getattr(variable, "handle", variable)


def _outermost(tensor: Any) -> Any:
    """Returns the tensor that a graph has captured, through the graphs of functions around it; else the tensor."""
    captures = getattr(getattr(tensor, "graph", None), "captures", ())
    outer = next((outer for outer, inner in captures if inner is tensor), None)
    return tensor if outer is None else _outermost(outer)
