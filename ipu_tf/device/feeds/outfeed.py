"""`Outfeed`: host side of an outfeed; holds elements that programs enqueued until they are dequeued."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ipu_tf.device.errors import DeviceError
from ipu_tf.device.timeline import span


class OutfeedRowMismatch(DeviceError):
    """Raised if a program enqueues elements of other shapes or dtypes than those that wait in an outfeed.

    Args:
        name: the outfeed's name.
        before: shape and dtype of each tensor of the elements that wait.
        wanted: of those of this program.
    """

    def __init__(self, name: str, before: Sequence[Any], wanted: Sequence[Any]) -> None:
        super().__init__(
            f"Outfeed with id='{name}' already exists but with a different tensor shape or replication factor. "
            f"Dequeue what waits first, or use an outfeed of its own. It has {_types_text(before)}. Received: "
            f"{_types_text(wanted)}."
        )


def _types_text(types: Sequence[Any]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for shape, dtype in types)


class Outfeed:
    """Named queue of elements.

    Args:
        name: unique in the process.
        last_only: keep only the newest element.

    Attributes:
        replicas: number of replicas of the programs that enqueue; None before the first.
        on_block: callback for each block of elements, `[n, *shape]` arrays, when it is enqueued; None for no callback.
    """

    def __init__(self, name: str, last_only: bool = False) -> None:
        self.name = name
        self.last_only = last_only
        self.replicas: int | None = None
        self.on_block: Callable[[tuple[np.ndarray, ...]], None] | None = None
        self._changed = threading.Condition()
        self._blocks: collections.deque[tuple[np.ndarray, ...]] = collections.deque()

    def put(self, arrays: Sequence[jax.Array | np.ndarray], count: int) -> None:
        """Enqueues a block of elements.

        Args:
            arrays: one for each tensor of an element: `[n, *shape]`, of which the first `count` entries are enqueued. A
                `last_only` queue takes one element, without the leading dimension.
            count: how many elements; 0 adds nothing.

        Raises:
            OutfeedRowMismatch: elements of other shapes or dtypes wait in the queue.
        """
        if count == 0:
            return
        # A copy: the arrays may share memory with buffers that the device is going to reuse. Sliced on the host: JAX
        # compiles a slice for each count.
        block = tuple(np.array(array)[None] if self.last_only else np.asarray(array)[:count].copy() for array in arrays)
        with self._changed:
            if self.last_only:
                self._blocks.clear()
            elif self._blocks:
                self._check(self._blocks[0], block)
            self._blocks.append(block)
            self._changed.notify_all()
        if self.on_block is not None:
            self.on_block(block)

    def _check(self, before: tuple[np.ndarray, ...], block: tuple[np.ndarray, ...]) -> None:
        types = [[(array.shape[1:], array.dtype) for array in each] for each in (before, block)]
        if types[0] != types[1]:
            raise OutfeedRowMismatch(self.name, *types)

    @property
    def unused(self) -> bool:
        """Returns whether no program has used it, and nothing is in it."""
        return self.replicas is None and not self

    def __len__(self) -> int:
        """Returns the number of elements in the queue."""
        with self._changed:
            return sum(len(block[0]) if block else 0 for block in self._blocks)

    def drain(self) -> tuple[np.ndarray, ...] | None:
        """Dequeues all elements, `[n, *shape]` each, oldest first; None if the queue is empty."""
        with span("Feeds", "dequeue"), self._changed:
            blocks = list(self._blocks)
            self._blocks.clear()
        if not blocks:
            return None
        return tuple(parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in zip(*blocks, strict=True))

    def pop(self) -> tuple[np.ndarray, ...] | None:
        """Dequeues the oldest element; None if the queue is empty."""
        with span("Feeds", "dequeue"), self._changed:
            if not self._blocks:
                return None
            block = self._blocks.popleft()
            if len(block[0]) > 1:
                self._blocks.appendleft(tuple(array[1:] for array in block))
            return tuple(array[0] for array in block)

    def newest(self) -> tuple[np.ndarray, ...] | None:
        """Returns the newest element without dequeuing it; None before the first."""
        with self._changed:
            return tuple(array[-1] for array in self._blocks[-1]) if self._blocks else None
