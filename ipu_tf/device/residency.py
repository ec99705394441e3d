"""Variables stay on the device between executions, and come back to the host when it wants them.

    host variable --acquire--> device buffer --execution--> new buffer (dirty) --flush--> host variable

Before an execution each variable's host memory is asked whether it changed since the last exchange; if it did, the
host wins and the value is uploaded, otherwise the device's buffer is used as it is.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from ipu_tf.device.counters import COUNTERS
from ipu_tf.device.replicas import Replicas
from ipu_tf.device.staging import aligned_empty

ONE = Replicas()
"""A program without replicas."""


Snapshot = tuple[np.ndarray, Any]
"""What `HostVariable.snapshot` gives."""


class HostVariable(Protocol):
    """The host's side of a variable."""

    def snapshot(self) -> Snapshot:
        """The present value as a view without a copy, and an object that keeps that memory from being reused.

        As long as the object lives, a write to the variable must show as a view at another address.
        """
        ...

    def write(self, value: np.ndarray) -> None:
        """Replaces the value. The array may be kept: it is not changed afterwards."""
        ...


@dataclasses.dataclass
class _Resident:
    variable: weakref.ref[Any]
    buffer: jax.Array
    replicas: Replicas
    address: int
    anchor: Any
    dirty: bool = False


class Residency:
    """The device-side buffers of host variables. The process has one, `RESIDENCY`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._residents: dict[int, _Resident] = {}

    def acquire_all(
        self,
        variables: Sequence[HostVariable],
        replicas: Replicas,
        homes: Sequence[Replicas | None],
        snapshots: Callable[[], Sequence[Snapshot]],
    ) -> list[jax.Array]:
        """`acquire` of several variables, each where it lives.

        Args:
            variables: the variables.
            replicas: of the program that wants them.
            homes: see `acquire`; one for each variable.
            snapshots: gives a snapshot of each variable: asking once for all costs less than asking each.
        """
        with self._lock:
            rows = zip(variables, homes, snapshots(), strict=True)
            return [self.acquire(variable, replicas, home, seen) for variable, home, seen in rows]

    def acquire(
        self,
        variable: HostVariable,
        replicas: Replicas = ONE,
        home: Replicas | None = None,
        seen: Snapshot | None = None,
    ) -> jax.Array:
        """The variable's buffer on the device, uploaded if the host changed it.

        With several replicas it has a leading axis of replicas: each keeps a value of its own. A program with another
        number of replicas than the last starts them all from replica 0.

        Args:
            variable: the variable.
            replicas: of the program that wants it.
            home: the replicas on the JAX devices to have it on; None for those that the program runs on otherwise.
            seen: a snapshot of the variable taken just now, if there is one.
        """
        with self._lock:
            view, anchor = seen or variable.snapshot()
            address = view.ctypes.data
            resident = self._residents.get(id(variable))
            if resident is not None and resident.address == address and not resident.buffer.is_deleted():
                if resident.replicas == replicas:
                    resident.buffer = _moved(resident.buffer, home or replicas)
                    return resident.buffer
                self.flush([variable])
                view, anchor = variable.snapshot()
                address = view.ctypes.data
            with jax.enable_x64(True):
                where = home or replicas
                one = replicas.count == 1
                buffer = where.place(_own_copy(view), 0) if one else where.spread(view, view.shape)
            COUNTERS.count_upload()
            self._residents[id(variable)] = _Resident(self._reference(variable), buffer, replicas, address, anchor)
            return buffer

    def commit(self, variable: HostVariable, buffer: jax.Array) -> None:
        """Keeps the variable's new value, which an execution produced. After `flush` the host sees replica 0's."""
        with self._lock:
            resident = self._residents[id(variable)]
            resident.buffer, resident.dirty = buffer, True

    def flush(self, variables: Iterable[HostVariable] | None = None) -> None:
        """Writes new values back to the host: of these variables, or of all.

        Variables whose buffers an execution has taken over, which is still under way, keep the host's value till then.
        """
        with self._lock:
            wanted = list(self._residents) if variables is None else [id(variable) for variable in variables]
            for key in wanted:
                resident = self._residents.get(key)
                variable = resident.variable() if resident is not None else None
                if resident is None or variable is None or not resident.dirty or resident.buffer.is_deleted():
                    continue
                if not self._host_changed(resident, variable):
                    variable.write(np.array(resident.replicas.first(resident.buffer)))
                    view, resident.anchor = variable.snapshot()
                    resident.address = view.ctypes.data
                resident.dirty = False

    def forget(self, variables: Iterable[HostVariable] | None = None) -> None:
        """Drops buffers, of these variables or of all, with whatever the host has not seen."""
        with self._lock:
            if variables is None:
                self._residents.clear()
                return
            for variable in variables:
                self._residents.pop(id(variable), None)

    def recover(self, variables: Iterable[HostVariable]) -> None:
        """After an execution that failed: keeps the variables' values if all are still there, else drops them all.

        Dropping all of them leaves the host's values, which belong together.
        """
        with self._lock:
            variables = list(variables)
            residents = [self._residents[id(v)] for v in variables if id(v) in self._residents]
            if any(resident.buffer.is_deleted() for resident in residents):
                self.forget(variables)
            else:
                self.flush(variables)

    def __len__(self) -> int:
        """How many variables have a buffer on the device."""
        return len(self._residents)

    @staticmethod
    def _host_changed(resident: _Resident, variable: HostVariable) -> bool:
        """A value that the host wrote while the device's was not read back yet is the newer one."""
        return variable.snapshot()[0].ctypes.data != resident.address

    def _reference(self, variable: HostVariable) -> weakref.ref[Any]:
        key = id(variable)
        return weakref.ref(variable, lambda _: self._residents.pop(key, None))


def _moved(buffer: jax.Array, where: Replicas) -> jax.Array:
    """A buffer where replicas run."""
    devices = where.where()
    return buffer if buffer.devices() == set(devices) else dataclasses.replace(where, devices=devices).place(buffer, 0)


def _own_copy(view: np.ndarray) -> np.ndarray:
    """A copy that the device may take over: the host's memory is never donated."""
    copy = aligned_empty(view.shape, view.dtype)
    copy[...] = view
    return copy


RESIDENCY = Residency()
