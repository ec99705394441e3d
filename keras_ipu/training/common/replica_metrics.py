"""Updates of Keras metrics in steps of several replicas: each batch counts once, in the order of the data.

no method set            batch 0 1 2 3 ... on every replica: what replicas take is gathered, as stock Keras counts it
NONE, LIST, SUM, MEAN    replica 0: batch 0 2 ..., replica 1: batch 1 3 ...
                         of a remainder, which every replica computes, each counts one part of as many; all of it
                         where the state of a metric is not known to be sums: a part of a maximum is none
"""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_ipu.stock.compiled_metrics import StockUpdate, has_sums, metric_updates_replaced, with_keras_mask
from keras_ipu.training.common.step_split import StepSplit

AllGather = Callable[[Any, int], Any]
"""Of a back end: the values of all replicas, `[replicas, *shape]`, from one of `shape` and the number of replicas."""


def metrics_in_step(model: Any, split: StepSplit, all_gather: AllGather) -> contextlib.AbstractContextManager[None]:
    """Context in which a full step is traced: metrics count the batches of all replicas, unless a method is set.

    Args:
        model: the model.
        split: of the step.
        all_gather: of the back end.
    """
    if split.all_replicas == 1 or not split.joint_metrics:
        return contextlib.nullcontext()
    return metric_updates_replaced(model, GatheredUpdate(split.all_replicas, all_gather))


def metrics_in_remainder(model: Any, split: StepSplit) -> contextlib.AbstractContextManager[None]:
    """Context in which a remainder is traced, of which every replica has all batches; arguments as above."""
    if split.replicas == 1 or split.joint_metrics:
        return contextlib.nullcontext()
    return metric_updates_replaced(model, SharedUpdate(split.replicas))


@dataclasses.dataclass(frozen=True)
class GatheredUpdate:
    """Update of a metric with the arguments of one replica after the other.

    Attributes:
        replicas: how many there are.
        all_gather: of the back end.
    """

    replicas: int
    all_gather: AllGather

    def __call__(self, metric: Any, stock: StockUpdate, *args: Any, **kwargs: Any) -> None:
        """Calls `update_state` of a metric once for each replica."""
        leaves = keras.tree.flatten((args, kwargs))
        gathered = [self._of_each_replica(leaf) for leaf in leaves]
        for own in zip(*gathered, strict=True):
            arguments, named = keras.tree.pack_sequence_as((args, kwargs), own)
            stock(*arguments, **named)

    def _of_each_replica(self, leaf: Any) -> list[Any]:
        if not ops.is_tensor(leaf):
            return [leaf] * self.replicas
        values = with_keras_mask(leaf, self._gathered)
        return [with_keras_mask(values, operator.itemgetter(replica)) for replica in range(self.replicas)]

    def _gathered(self, value: Any) -> Any:
        return self.all_gather(value, self.replicas)


@dataclasses.dataclass(frozen=True)
class SharedUpdate:
    """Update of a metric by one part of as many as there are replicas: sums over them count a batch once.

    Metrics of other state count the whole of it on every replica, those in whole numbers included: these have no equal
    parts, and what a metric computes of unequal ones is no replica's.

    Attributes:
        replicas: how many there are.
    """

    replicas: int

    def __call__(self, metric: Any, stock: StockUpdate, *args: Any, **kwargs: Any) -> None:
        """Calls `update_state` of a metric, and takes a part of what that adds to its variables."""
        before = {id(variable): ops.copy(variable) for variable in metric.variables}
        stock(*args, **kwargs)
        if not has_sums(metric) or not all(_is_float(variable) for variable in metric.variables):
            return
        for variable in metric.variables:
            after = ops.copy(variable)
            # One that the update made began with what `reset_state` sets.
            began = before.get(id(variable), ops.zeros_like(after))
            variable.assign(began + (after - began) / self.replicas)


def _is_float(variable: Any) -> bool:
    return bool(keras.backend.is_float_dtype(keras.backend.standardize_dtype(variable.dtype)))
