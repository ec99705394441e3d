"""`Reading`: elements that a thread reads for a program, until the program stops it or leaves it.

thread    element -> store ─┬─► staging buffer
                            └─► refused: the program has left; the element stays in its infeed, as the next one
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from ipu_tf.device.feeds.staging import Staged

Element = Sequence[np.ndarray]


class Reading:
    """What a thread reads, and the program that waits for it.

    Attributes:
        stopped: whether no element is to be read after the one that the thread waits for.
        abandoned: whether nobody takes what is read: no element is stored any more. Set with the lock held.
        lock: held while an element is stored.
    """

    def __init__(self) -> None:
        self.stopped = False
        self.abandoned = False
        self.lock = threading.Lock()

    def abandon(self) -> None:
        """Leaves the thread. What was stored before does not change afterwards."""
        with self.lock:
            self.stopped = self.abandoned = True


class Slot:
    """Place for one element, which a reading may be `of`.

    Attributes:
        element: the element; None before it is stored.
    """

    def __init__(self, of: Reading | None = None) -> None:
        self.element: Element | None = None
        self._of = of

    def store(self, element: Element) -> bool:
        """Stores the element; returns False if the reading was abandoned."""
        if self._of is None:
            self.element = element
            return True
        with self._of.lock:
            if not self._of.abandoned:
                self.element = element
            return not self._of.abandoned


class Filling:
    """Staging buffers of an infeed, filled with one element after the other.

    Args:
        arrays: the buffers: `[capacity, *shape]` for each tensor of an element, or `[capacity, replicas, *shape]`.
        flat: the same as `[elements, *shape]`.
        of: the reading that fills them.

    Attributes:
        replicas: how many elements a step takes.
        elements: how many are stored.
        error: what ended the source, if it ended.
    """

    def __init__(self, arrays: tuple[np.ndarray, ...], flat: list[np.ndarray], of: Reading) -> None:
        self.arrays, self.flat, self.of = arrays, flat, of
        self.replicas = len(flat[0]) // len(arrays[0]) if len(arrays[0]) else 1
        self.elements = 0
        self.error: BaseException | None = None

    def store(self, element: Element) -> bool:
        """Stores the next element; returns False if the reading was abandoned."""
        with self.of.lock:
            if self.of.abandoned:
                return False
            for buffer, value in zip(self.flat, element, strict=True):
                buffer[self.elements] = value
            self.elements += 1
        return True

    @property
    def steps(self) -> int:
        """For how many steps all elements are stored."""
        return self.elements // self.replicas

    def staged(self) -> Staged:
        """Returns the complete steps that are stored."""
        return Staged(self.arrays, self.steps, self.error)
