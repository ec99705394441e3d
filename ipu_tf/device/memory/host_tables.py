"""Registry of embedding tables in host memory, with lookups and updates from running programs.

Each table has a name, is known from `register` to `deregister`, and is reached by ordered callbacks.
"""

from __future__ import annotations

import threading

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
        updates_at_once: how many updates are gathered before all of them are added; None gathers until `apply`.
    """

    def __init__(self, rows: np.ndarray, updates_at_once: int | None = 1) -> None:
        self.rows = rows
        self._updates_at_once = updates_at_once
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []
        self._lock = threading.Lock()

    def lookup(self, indices: np.ndarray) -> np.ndarray:
        """Looks up rows by index.

        Raises:
            HostTableIndexError: if one is out of range.
        """
        with self._lock:
            self._check(indices)
            return np.take(self.rows, indices, axis=0)

    def update(self, indices: np.ndarray, changes: np.ndarray) -> None:
        """Adds to rows by index, now or together with later updates."""
        with self._lock:
            self._check(indices)
            self._waiting.append((indices, changes))
            if len(self._waiting) == self._updates_at_once:
                self._add_waiting()

    def apply(self) -> None:
        """Applies the buffered updates."""
        with self._lock:
            self._add_waiting()

    def _check(self, indices: np.ndarray) -> None:
        wrong = indices[(indices < 0) | (indices >= len(self.rows))]
        if wrong.size:
            raise HostTableIndexError(int(wrong.flat[0]), len(self.rows))

    def _add_waiting(self) -> None:
        for indices, changes in self._waiting:
            np.add.at(self.rows, indices, changes.astype(self.rows.dtype))
        self._waiting = []


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
