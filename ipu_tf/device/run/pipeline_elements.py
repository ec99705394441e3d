"""The elements that a pipeline's passes take from infeeds: one at a time, for each replica."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.staging import Staged
from ipu_tf.device.feeds.timeout import next_element


class PipelineElements:
    """Takes elements for one run.

    Args:
        names: the infeeds it takes them from.
        replicas: how many replicas there are; they take turns.

    Raises:
        UnknownQueue: if there is no infeed of a name.
    """

    def __init__(self, names: Iterable[str], replicas: int) -> None:
        self._queues = {name: queues.infeed(name) for name in names}
        self._replicas = replicas

    def take(self, names: Iterable[str]) -> dict[str, list[np.ndarray]]:
        """The next element of each of some infeeds, on the host: with a leading axis of replicas if there are several.

        Raises:
            BaseException: what keeps an infeed from giving one. Whatever was taken by then is given back.
        """
        taken: list[tuple[str, Sequence[np.ndarray]]] = []
        try:
            for name in names:
                for _ in range(self._replicas):
                    taken.append((name, next_element(self._queues[name])))
        except BaseException:
            for name, element in reversed(taken):
                self._queues[name].give_back(Staged(tuple(np.asarray(array)[None] for array in element), 1), 0)
            raise
        return {name: self._joined([element for owner, element in taken if owner == name]) for name in names}

    def _joined(self, elements: list[Sequence[np.ndarray]]) -> list[np.ndarray]:
        if self._replicas == 1:
            return list(elements[0])
        return [np.stack(arrays) for arrays in zip(*elements, strict=True)]
