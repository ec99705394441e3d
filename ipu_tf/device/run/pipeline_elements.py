"""Dequeues infeed elements for the micro-batches of a pipeline, one at a time for each replica."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.staging import Staged
from ipu_tf.device.feeds.timeout import next_element


class PipelineElements:
    """Dequeues elements for one run.

    Args:
        infeeds: the infeeds by name.
        replicas: how many replicas there are; they take turns.
    """

    def __init__(self, infeeds: Mapping[str, Infeed], replicas: int) -> None:
        self._queues = infeeds
        self._replicas = replicas

    def take(self, names: Iterable[str]) -> dict[str, list[np.ndarray]]:
        """Dequeues the next element of some infeeds, on the host; with a leading replica axis if there are several.

        Raises:
            BaseException: the error of an infeed. Elements dequeued before it are returned to their infeeds.
        """
        taken: list[tuple[str, Sequence[np.ndarray]]] = []
        try:
            for name in names:
                for _ in range(self._replicas):
                    taken.append((name, next_element(self._queues[name])))
        except BaseException:
            for name, element in reversed(taken):
                self._queues[name].return_elements(Staged(tuple(np.asarray(array)[None] for array in element), 1), 0)
            raise
        return {name: self._joined([element for owner, element in taken if owner == name]) for name in names}

    def _joined(self, elements: list[Sequence[np.ndarray]]) -> list[np.ndarray]:
        if self._replicas == 1:
            return list(elements[0])
        return [np.stack(arrays) for arrays in zip(*elements, strict=True)]
