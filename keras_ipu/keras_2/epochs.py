"""`EpochIterator`: batches of an epoch of Keras 2's `DataHandler`, with their number; those of arrays go on after it.

DataHandler.enumerate_epochs ──► EpochIterator ──► Keras2StepFunction ──► EndingEpochs ──► feed
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

from keras_ipu.stock.models import strategy_of
from keras_ipu.stock.ownership import on_device


@dataclasses.dataclass(frozen=True)
class EpochIterator:
    """What a model's functions are called with.

    Attributes:
        batches: Keras's own iterator, of this epoch alone or of this and later ones.
        count: how many batches the epoch takes, for all replicas; None if that is not known.
    """

    batches: Iterator[Any]
    count: int | None


def with_counts(stock: Callable[[Any], Iterator[Any]]) -> Callable[[Any], Iterator[Any]]:
    """Returns a replacement of `DataHandler.enumerate_epochs`, for models that run on the device."""

    def enumerate_epochs(handler: Any) -> Iterator[Any]:
        model = handler._model  # noqa: SLF001 - whose data it is
        for epoch, batches in stock(handler):
            ours = model is not None and on_device(strategy_of(model)) and not model.run_eagerly
            yield epoch, EpochIterator(batches, _finite(handler.inferred_steps)) if ours else batches

    return enumerate_epochs


def _finite(count: float | None) -> int | None:
    return None if count is None or math.isinf(count) else int(count)


class EndingEpochs(Iterator[Any]):
    """Batches that end after each epoch, and go on with those of the next one: the feed finds the last to be too few.

    Args:
        batches: of all epochs.
        count: how many an epoch has.
    """

    def __init__(self, batches: Iterator[Any], count: int) -> None:
        self._batches, self._count, self._left = batches, count, count

    def __next__(self) -> Any:
        if not self._left:
            self._left = self._count
            raise StopIteration
        batch = next(self._batches)
        self._left -= 1
        return batch
