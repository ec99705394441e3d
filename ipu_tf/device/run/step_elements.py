"""Dequeues infeed elements one step at a time: for micro-batches of a pipeline, and for programs without a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.device.feeds.timeout import next_element


class StepElements:
    """Dequeues elements for one run.

    Args:
        infeeds: the infeeds by name.
        replicas: how many replicas there are; they take turns.
        interrupted: whether Ctrl-C was pressed; it ends the wait for an element.
    """

    def __init__(self, infeeds: Mapping[str, Infeed], replicas: int, interrupted: Callable[[], bool]) -> None:
        self._queues = infeeds
        self._replicas = replicas
        self._interrupted = interrupted

    def take(self, names: Iterable[str]) -> dict[str, list[np.ndarray]]:
        """Dequeues the next element of some infeeds, on the host; with a leading replica axis if there are several.

        Raises:
            BaseException: the error of an infeed. Elements dequeued before it are returned to their infeeds.
            KeyboardInterrupt: if no element arrives soon after Ctrl-C.
        """
        taken: list[tuple[str, Sequence[np.ndarray]]] = []
        try:
            for name in names:
                for _ in range(self._replicas):
                    taken.append((name, next_element(self._queues[name], self._interrupted)))
        except BaseException:
            for name, element in reversed(taken):
                self._queues[name].return_element(element)
            raise
        return {name: self._joined([element for owner, element in taken if owner == name]) for name in names}

    def _joined(self, elements: list[Sequence[np.ndarray]]) -> list[np.ndarray]:
        if self._replicas == 1:
            return list(elements[0])
        return [np.stack(arrays) for arrays in zip(*elements, strict=True)]
