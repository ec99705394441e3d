"""`InstanceGroup`: the instances that run this program together, joined; every wait for another one is bounded."""

from __future__ import annotations

import atexit
import contextlib
import functools
import threading
import time
from collections import Counter

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.environment import instance_timeout
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.instances.coordination import Coordination
from ipu_tf.device.instances.place import Place, place

_LOOK_AFTER = 0.5
"""Seconds of a wait after which it looks what became of the other instance."""
_BEAT = 2.0
"""Seconds between the signs of life that an instance gives."""
_GONE_AFTER = 20.0
"""Seconds without one after which it counts as gone."""
_LISTENING = (
    "Instance 0 has to listen at an address that all instances know: set JAX_COORDINATOR_ADDRESS=host:port in all of "
    "them. poprun sets it; Slurm and Open MPI say it to JAX by themselves."
)
_TOO_LATE = (
    "This process is one of {count} instances, and used the device before it joined the others. Call popdist.init() "
    "first: before a device is configured, and before any computation."
)


class InstanceError(DeviceError):
    """Raised if instances cannot be joined, or one waits for another that ended, is gone, or does not come."""


class InstanceGroup:
    """The instances of a program, which this process has joined.

    Args:
        own: which one this is.
        coordination: the connection to the others.
        timeout: seconds for which it waits for another instance.
    """

    def __init__(self, own: Place, coordination: Coordination, timeout: float) -> None:
        self.place = own
        self._coordination = coordination
        self._timeout = timeout
        self._uses: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._seen: dict[int, tuple[str | None, float]] = {}
        self._ended = threading.Event()
        threading.Thread(target=self._beat, name="instance: signs of life", daemon=True).start()

    def exchange(self, name: str, value: bytes) -> list[bytes]:
        """Gives a value to all instances; waits for the values that they give by the same name.

        Values of one name are matched in the order in which each instance gives them; different names do not wait for
        each other.

        Args:
            name: what the value is called.
            value: this instance's.

        Returns:
            The values of all instances, instance 0's first.

        Raises:
            InstanceError: if an instance ended, or does not come within the timeout.
        """
        with self._lock:
            use = self._uses[name]
            self._uses[name] += 1
        self._coordination.put(f"exchange/{name}/{use}/{self.place.index}", value)
        others = (other for other in range(self.place.count) if other != self.place.index)
        values = {other: self._wait(f"exchange/{name}/{use}/{other}", other, name) for other in others}
        if use:  # all have given this one: they have read the one before
            self._coordination.delete(f"exchange/{name}/{use - 1}/{self.place.index}")
        return [values.get(instance, value) for instance in range(self.place.count)]

    def leave(self) -> None:
        """Says that this instance ends; instance 0, where the others' connections end, waits until they have too."""
        own = self.place.index
        with contextlib.suppress(Exception):  # another instance that is gone is no fault of this one
            self._coordination.note(f"ended/{own}", "")
            until = time.monotonic() + self._timeout
            left = set(range(self.place.count)) - {own} if own == 0 else set()
            while left and time.monotonic() < until:
                left = {other for other in left if not self.fate(other)}
                time.sleep(0.05 if left else 0)
        self._ended.set()
        self._coordination.leave()

    def _wait(self, key: str, other: int, what: str) -> bytes:
        """Waits for a value of another instance."""
        until = time.monotonic() + self._timeout
        while True:
            value = self._coordination.get(key, min(_LOOK_AFTER, self._timeout))
            fate = self.fate(other) if value is None else ""
            if fate:  # what it gave before it ended counts
                value = self._coordination.get(key, 0.01)
            elif value is None and time.monotonic() > until:
                fate = f"did not come within {self._timeout:.0f} seconds (IPU_TF_INSTANCE_TIMEOUT sets them)"
            if value is not None:
                return value
            if fate:
                own = self.place.index
                raise InstanceError(f"Instance {own} waited for instance {other} in '{what}': instance {other} {fate}.")

    def fate(self, other: int) -> str:
        """Returns why another instance will not come: it ended, or is gone; empty if it may."""
        if self._coordination.noted(f"ended/{other}") is not None:
            return "has ended"
        now, sign = time.monotonic(), self._coordination.noted(f"alive/{other}")
        last, since = self._seen.setdefault(other, (sign, now))
        if sign != last:
            self._seen[other] = sign, now
        elif now - since > _GONE_AFTER:
            return f"is gone: it gave no sign of life for {_GONE_AFTER:.0f} seconds"
        return ""

    def _beat(self) -> None:
        """Gives signs of life until this instance leaves."""
        beat = 0
        with contextlib.suppress(Exception):  # the connection ends with instance 0
            while not self._ended.wait(_BEAT):
                beat += 1
                self._coordination.note(f"alive/{self.place.index}", str(beat))


_GROUP: ProcessValue[InstanceGroup | None] = register_state(
    "instances that were joined", ProcessValue(None), kept="a process joins once"
)
_EXPECTED = register_state("whether other instances are to be joined", ProcessValue(False), kept="a program is one")


def expect_others() -> None:
    """Says that this program runs as several instances: they are joined before the device is first used."""
    _EXPECTED.value = True


def join_if_expected() -> InstanceGroup | None:
    """Joins the other instances if the program said that there may be some; returns them, None if there are none."""
    return join() if _EXPECTED.value else None


def group() -> InstanceGroup | None:
    """Returns the instances that were joined; None if there are none."""
    return _GROUP.value


def join() -> InstanceGroup | None:
    """Joins the other instances of this program, once; returns them, None if this process is the only one.

    Raises:
        InstanceError: if JAX runs already, nothing says where instance 0 listens, or the others do not come in time.
    """
    own = place()
    if own.count == 1 or _GROUP.value is not None:
        return _GROUP.value
    timeout = instance_timeout()
    try:
        coordination = Coordination(own, timeout)
    except (ValueError, IndexError) as error:  # JAX splits an empty address
        raise InstanceError(f"{_LISTENING} JAX says: {error}") from error
    except RuntimeError as error:
        if "runs already" in str(error):
            raise InstanceError(_TOO_LATE.format(count=own.count)) from None
        raise InstanceError(
            f"Instance {own.index} of {own.count} could not join the others within {timeout:.0f} seconds "
            f"(IPU_TF_INSTANCE_TIMEOUT sets them): {str(error).splitlines()[0]}"
        ) from error
    _GROUP.value = InstanceGroup(own, coordination, timeout)
    atexit.register(functools.partial(_leave_at_exit, _GROUP.value))
    return _GROUP.value


def leave() -> None:
    """Leaves the other instances, if they were joined."""
    joined, _GROUP.value = _GROUP.value, None
    if joined is not None:
        joined.leave()


def _leave_at_exit(joined: InstanceGroup) -> None:
    if _GROUP.value is joined:
        leave()
