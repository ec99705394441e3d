"""Epoch iterator for Keras's JAX back end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ipu_tf._loops.jax_feed import JaxFeed
from keras_ipu.training.common.data_checks import warn_cast
from keras_ipu.training.common.epoch_iterator import ElementIterator, IPUEpochIterator
from keras_ipu.training.common.partial_batches import sizes_vary


class JaxElementIterator(ElementIterator):
    """The batches of an epoch, one at a time also for several replicas, and how many steps an execution runs.

    Args:
        iterator: Keras's iterator over the batches.
        steps: steps of one execution, of each replica.
        first: see `ElementIterator`.
    """

    def __init__(self, iterator: Iterator[Any], steps: int, first: bool = False) -> None:
        super().__init__(
            iterator, JaxFeed(iterator, warn_cast, sizes_vary()), steps, replicas=1, wanted=steps, first=first
        )


class JaxEpochIterator(IPUEpochIterator):
    """`IPUEpochIterator` for the JAX backend: executions take their batches from `JaxElementIterator`."""

    arrays_of = staticmethod(lambda adapter: None)

    def _get_iterator(self) -> Any:
        # Bypasses Keras's own iterator, which would copy batches to JAX's device one by one.
        return JaxElementIterator(iter(self.data_adapter.get_jax_iterator()), self.steps_per_execution, self.is_first())
