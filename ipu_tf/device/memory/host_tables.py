"""Registry of embedding tables in host memory, with lookups and updates from running programs.

Each table has a name, is known from `register` to `deregister`, and is reached by ordered callbacks.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable

import numpy as np

from ipu_tf._state.registry import register_state
from ipu_tf.device.errors import DeviceError


class UnknownHostTable(DeviceError):
    """Raised if a program uses a table that is not registered.

    Attributes:
        name: the table's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"Host embedding interface with id='{name}' not registered. Did you run the associated host_embedding op "
            "in the session?"
        )


class HostTableExists(DeviceError):
    """Raised if a table of this name is registered already."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Cannot register host embedding with id='{name}' it already exists!")


class HostTableIndexError(DeviceError, IndexError):
    """Raised if a lookup or update has an index out of range."""

    def __init__(self, index: int, rows: int) -> None:
        super().__init__(
            f"An index of a host embedding must be in [0, {rows}). Received: {index}. lookup(clip_indices=True) gives "
            "the nearest row instead."
        )


class HostTable:
    """Table of rows in host memory, with buffered updates.

    Args:
        rows: the table, changed in place.
        updates_at_once: how many updates of one giver are gathered before all of these are added; None gathers until
            `apply`.
    """

    def __init__(self, rows: np.ndarray, updates_at_once: int | None = 1) -> None:
        self.rows = rows
        self._updates_at_once = updates_at_once
        self._waiting: dict[Hashable, list[tuple[np.ndarray, np.ndarray]]] = {}
        self._lock = threading.Lock()

    def lookup(self, indices: np.ndarray) -> np.ndarray:
        """Looks up rows by index.

        Raises:
            HostTableIndexError: if one is out of range.
        """
        with self._lock:
            self._check(indices)
            return np.take(self.rows, indices, axis=0)

    def update(self, indices: np.ndarray, changes: np.ndarray, giver: Hashable = None) -> None:
        """Adds to rows by index, now or together with later updates.

        Args:
            indices: of the rows.
            changes: what is added to each.
            giver: who gives one update for each mini-batch: a lookup of a replica.
        """
        with self._lock:
            self._check(indices)
            waiting = self._waiting.setdefault(giver, [])
            waiting.append((indices, changes))
            if len(waiting) == self._updates_at_once:
                self._add(self._waiting.pop(giver))

    def apply(self) -> None:
        """Applies the buffered updates."""
        with self._lock:
            for waiting in self._waiting.values():
                self._add(waiting)
            self._waiting = {}

    def _check(self, indices: np.ndarray) -> None:
        wrong = indices[(indices < 0) | (indices >= len(self.rows))]
        if wrong.size:
            raise HostTableIndexError(int(wrong.flat[0]), len(self.rows))

    def _add(self, updates: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        for indices, changes in updates:
            np.add.at(self.rows, indices, changes.astype(self.rows.dtype))


_lock = threading.Lock()
_tables: dict[str, HostTable] = register_state("embedding tables on the host", {})


def register(name: str, table: HostTable) -> None:
    """Registers a table.

    Raises:
        HostTableExists: if the name is taken.
    """
    with _lock:
        if name in _tables:
            raise HostTableExists(name)
        _tables[name] = table


def deregister(name: str) -> HostTable:
    """Unregisters a table and returns it; buffered updates are dropped.

    Raises:
        UnknownHostTable: if there is none of the name.
    """
    with _lock:
        if name not in _tables:
            raise UnknownHostTable(name)
        return _tables.pop(name)


def registered(name: str) -> bool:
    """Returns whether there is a table of this name."""
    with _lock:
        return name in _tables


def host_table(name: str) -> HostTable:
    """Returns the table of this name.

    Raises:
        UnknownHostTable: if there is none.
    """
    with _lock:
        if name not in _tables:
            raise UnknownHostTable(name)
        return _tables[name]
