"""Keeps variables resident on the device between executions, and writes them back to the host on demand.

    host variable --acquire--> device buffer --execution--> new buffer (dirty) --flush--> host variable

Before an execution each variable's host memory is checked for changes since the last exchange; if it changed, the
host's value is uploaded, otherwise the device's buffer is used as it is.

On a CPU a variable that programs only read is not copied: its buffer is the host's memory itself. A program that
changes it gets a copy, as its buffer is donated.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf._state.registry import register_state
from ipu_tf.device.counters import COUNTERS
from ipu_tf.device.feeds.staging import aligned_empty
from ipu_tf.device.memory.claim import Claim
from ipu_tf.device.memory.claims import Claims
from ipu_tf.device.memory.host_variable import (
    HostVariable,
    Snapshot,
    address,
    addresses,
    shared_snapshot,
    snapshots,
)
from ipu_tf.device.program.replicas import Replicas

ONE = Replicas()
"""A program without replicas."""


_PORTION = 1 << 23
"""Bytes of large values that are written back to the host together."""
SMALL = 1 << 16
"""Most bytes of a small value: the host may write those together, and another copy costs less than avoiding it."""


@dataclasses.dataclass
class _ResidentVariable:
    variable: weakref.ref[Any]
    buffer: jax.Array
    replicas: Replicas
    address: int
    anchor: Any
    dirty: bool = False
    shared: bool = False
    """Whether the buffer may be the host's memory, which is never donated."""


class _Use(NamedTuple):
    """How an execution uses one variable.

    Attributes:
        replicas: of the program.
        home: as for `Residency.acquire_all`.
        only_read: as for `Residency.acquire_all`.
        where: the JAX devices that the program runs on otherwise.
        seen: a snapshot of the variable taken just now.
    """

    replicas: Replicas
    home: Replicas | None
    only_read: bool
    where: frozenset[Any]
    seen: Snapshot


class Residency:
    """Device buffers of host variables. The process has one, `RESIDENCY`.

    Attributes:
        claims: which executions use the variables now.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.claims = Claims(self._lock)
        self._residents: dict[int, _ResidentVariable] = {}
        self._prepared: dict[int, tuple[int, np.ndarray]] = {}

    def acquire_all(
        self,
        variables: Sequence[HostVariable],
        replicas: Replicas = ONE,
        homes: Sequence[Replicas | None] = (),
        only_read: Sequence[bool] = (),
        claim: Claim | None = None,
    ) -> list[jax.Array]:
        """Returns the variables' device buffers, uploaded where the host changed them.

        With several replicas each has a leading axis of replicas: each keeps a value of its own. A program with another
        number of replicas than the last starts them all from replica 0.

        Args:
            variables: the variables.
            replicas: of the program that uses them.
            homes: for each variable the replicas on the JAX devices to have it on; None for those that the program
                runs on otherwise. Empty for None everywhere.
            only_read: for each variable whether the program leaves it as it is: its buffer may be the host's memory and
                is not to be donated. Empty for False everywhere.
            claim: of the execution that uses them, which holds it. The buffers are noted in it.
        """
        count = len(variables)
        with self._lock:
            self._settle(variables, claim)
            where, acquire = frozenset(replicas.where()), self._acquire
            if self.claims.others(claim):
                acquire = self._acquire_beside_others
            kinds = zip(homes or [None] * count, only_read or [False] * count, strict=True)
            rows = zip(variables, kinds, snapshots(variables), strict=True)
            buffers = [acquire(claim, variable, _Use(replicas, *kind, where, seen)) for variable, kind, seen in rows]
            if claim is not None:
                claim.borrow(dict(zip(map(id, variables), buffers, strict=True)))
                claim.records = {key: self._residents[key] for key in claim.writes}
            return buffers

    def _settle(self, variables: Sequence[HostVariable], claim: Claim | None) -> None:
        """Notes whether the device has newer values than the host of what an execution will change."""
        if claim is not None:
            changed = (self._residents.get(id(v)) for v in variables if id(v) in claim.writes)
            claim.exposed = any(resident is not None and resident.dirty for resident in changed)

    def _acquire_beside_others(self, claim: Claim | None, variable: HostVariable, use: _Use) -> jax.Array:
        """Returns one variable's device buffer, as `_acquire`, while other executions may use the variable."""
        if self.claims.hidden(id(variable), claim):
            return _value_before(use)
        buffer = self._acquire(claim, variable, use)
        if not use.only_read and self.claims.borrowed(id(variable), buffer, claim):
            buffer = self._residents[id(variable)].buffer = jnp.array(buffer, copy=True)
        return buffer

    def _acquire(self, claim: Claim | None, variable: HostVariable, use: _Use) -> jax.Array:
        """Returns one variable's device buffer."""
        replicas, home, only_read, where, seen = use
        resident = self._residents.get(id(variable))
        if resident is not None and resident.address == address(seen) and not resident.buffer.is_deleted():
            usable = only_read or not resident.shared
            if usable and (resident.replicas is replicas or resident.replicas == replicas):
                if resident.buffer.devices() != (frozenset(home.where()) if home else where):
                    resident.buffer = _moved(resident.buffer, home or replicas)
                return resident.buffer
            self.flush([variable], claim)
        seen = shared_snapshot(variable)
        one = replicas.count == 1
        with jax.enable_x64(True):
            place, view = home or replicas, self._values_to_upload(variable, replicas, seen)
            if one:
                buffer = place.place(view, 0) if only_read else _donatable(view, place)
            else:
                buffer = place.spread(view, seen[0].shape)
        COUNTERS.count_upload()
        self._residents[id(variable)] = _ResidentVariable(
            self._reference(variable), buffer, replicas, address(seen), seen[1], shared=one and only_read
        )
        return buffer

    def _values_to_upload(self, variable: HostVariable, replicas: Replicas, seen: Snapshot) -> np.ndarray:
        """Returns the host's value; or each replica's, as `prepare` was given them, unless the host wrote since."""
        place, values = self._prepared.pop(id(variable), (None, None))
        return values if values is not None and place == address(seen) and replicas.count > 1 else seen[0]

    def replica_values(self, variable: HostVariable) -> np.ndarray | None:
        """Returns a copy of the value that each replica has, `[replicas, ...]`; None where all have the host's."""
        with self._lock:
            resident = self._residents.get(id(variable))
            if resident is None or resident.replicas.count == 1 or resident.buffer.is_deleted():
                return None
            if resident.address != address(snapshots([variable])[0]):
                return None
            values = np.array(resident.buffer)
        return None if all(each.tobytes() == values[0].tobytes() for each in values[1:]) else values

    def prepare(self, variable: HostVariable, values: np.ndarray) -> None:
        """Has the replicas of the next program begin with a value each, as long as the host does not write another.

        Args:
            variable: whose value on the host is that of replica 0.
            values: `[replicas, ...]`.
        """
        with self._lock:
            self._prepared[id(variable)] = (address(shared_snapshot(variable)), values)

    def commit(
        self, variables: Sequence[HostVariable], buffers: Sequence[jax.Array], claim: Claim | None = None
    ) -> None:
        """Stores the variables' new values, results of an execution, all at once. `flush` writes them to the host.

        Args:
            variables: the variables.
            buffers: the new value of each.
            claim: of the execution. Variables that were dropped since it began are resident again.
        """
        with self._lock:
            for key, buffer in zip(map(id, variables), buffers, strict=True):
                if claim is not None:
                    self._residents[key] = claim.records[key]
                resident = self._residents[key]
                resident.buffer, resident.dirty, resident.shared = buffer, True, False

    def flush(self, variables: Iterable[HostVariable] | None = None, claim: Claim | None = None) -> None:
        """Writes new values back to the host, of these variables or of all; of several replicas that of replica 0.

        Variables that a running execution changes keep the host's value until it ends.

        Args:
            variables: which; None for all.
            claim: of the execution whose values are written.
        """
        with self._lock:
            wanted = list(self._residents if variables is None else map(id, variables))
            if self.claims.others(claim):
                wanted = [key for key in wanted if not self.claims.hidden(key, claim)]
            dirty = [pair for pair in map(self._dirty, wanted) if pair is not None]
            # A value that the host wrote while the device's was not read back yet is the newer one.
            places = addresses([variable for _, variable in dirty])
            older = [pair for pair, now in zip(dirty, places, strict=True) if pair[0].address == now]
            self._write([resident for resident, _ in older], [variable for _, variable in older])
            for resident, _ in dirty:
                resident.dirty = False

    def _dirty(self, key: int) -> tuple[_ResidentVariable, HostVariable] | None:
        """Returns a variable if it has a new value on the device."""
        resident = self._residents.get(key)
        variable = resident.variable() if resident is not None else None
        if resident is None or variable is None or not resident.dirty or resident.buffer.is_deleted():
            return None
        return resident, variable

    @staticmethod
    def _write(residents: Sequence[_ResidentVariable], variables: Sequence[HostVariable]) -> None:
        for place in _portions([resident.buffer.nbytes for resident in residents]):
            written, some = [variables[each] for each in place], [residents[each] for each in place]
            values = [np.asarray(each.replicas.first(each.buffer)) for each in some]
            type(written[0]).write_all(written, values)
            for resident, seen in zip(some, snapshots(written), strict=True):
                resident.address, resident.anchor = address(seen), seen[1]

    def forget(self, variables: Iterable[HostVariable] | None = None) -> None:
        """Drops buffers, of these variables or of all, including values that were not written back."""
        with self._lock:
            if variables is None:
                self._residents.clear()
                self._prepared.clear()
                return
            for variable in variables:
                self._residents.pop(id(variable), None)

    def clear(self) -> None:
        """Writes new values back to the host, then drops all buffers."""
        with self._lock:
            self.flush()
            self.forget()

    def recover(self, variables: Iterable[HostVariable], claim: Claim | None = None) -> None:
        """Recovers from a failed execution: keeps the variables' buffers if all are valid, else drops them all.

        Dropping all of them leaves the host's values, which belong together.

        Args:
            variables: those that the execution used.
            claim: of the execution.
        """
        with self._lock:
            variables = list(variables)
            residents = [self._residents[id(v)] for v in variables if id(v) in self._residents]
            if any(resident.buffer.is_deleted() for resident in residents):
                self.forget(variables)
            else:
                self.flush(variables, claim)

    def __len__(self) -> int:
        """Returns the number of resident variables."""
        return len(self._residents)

    def _reference(self, variable: HostVariable) -> weakref.ref[Any]:
        key = id(variable)
        return weakref.ref(variable, lambda _: self._residents.pop(key, None))


def _portions(sizes: Sequence[int]) -> list[list[int]]:
    """Returns places of small values, and of large ones about `_PORTION` bytes at a time, the largest first.

    What variables had before is dropped after each, and fits what comes next.
    """
    portions: list[list[int]] = [[place for place, size in enumerate(sizes) if size <= SMALL]]
    room = 0
    for place, size in sorted(enumerate(sizes), key=lambda pair: -pair[1]):
        if size > SMALL:
            if room <= 0:
                portions.append([])
                room = _PORTION
            portions[-1].append(place)
            room -= size
    return [each for each in portions if each]


def _value_before(use: _Use) -> jax.Array:
    """Uploads a variable's value from before the execution that is changing it, for one that only reads it."""
    place, view = use.home or use.replicas, np.array(use.seen[0])
    with jax.enable_x64(True):
        return place.place(view, 0) if use.replicas.count == 1 else place.spread(view, view.shape)


def _moved(buffer: jax.Array, replicas: Replicas) -> jax.Array:
    """Moves a buffer to the devices that replicas run on."""
    return dataclasses.replace(replicas, devices=replicas.where()).place(buffer, 0)


def _donatable(view: np.ndarray, place: Replicas) -> jax.Array:
    """Copies an array to the device, into memory that can be donated.

    On a CPU JAX uses an aligned array's memory as it is, and an execution that it is donated to copies it once more.
    So a large array is copied by JAX, to memory of its own. For a small one that takes longer than two copies.
    """
    if view.nbytes <= SMALL:
        copy = aligned_empty(view.shape, view.dtype)
        copy[...] = view
        return place.place(copy, 0)
    buffer = place.place(view, 0)
    if all(device.platform == "cpu" for device in buffer.devices()):
        buffer = jax.device_put(buffer, buffer.sharding, may_alias=False)
    return buffer.block_until_ready()  # the host may write to the array from now on


RESIDENCY = register_state("variables on the device", Residency())
