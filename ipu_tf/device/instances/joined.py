"""Instances that this process has joined: `join` once, `leave` at the end."""

from __future__ import annotations

import atexit
import functools
import logging
import socket

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.environment import coordinator_host, instance_timeout
from ipu_tf.device.instances import memory
from ipu_tf.device.instances.coordination import Coordination
from ipu_tf.device.instances.group import InstanceError, InstanceGroup
from ipu_tf.device.instances.place import place

_log = logging.getLogger("ipu_tf")
_LISTENING = (
    "Instance 0 has to listen at an address that all instances know: set JAX_COORDINATOR_ADDRESS=host:port in all of "
    "them. poprun sets it; Slurm and Open MPI say it to JAX by themselves."
)
_TOO_LATE = (
    "This process is one of {count} instances, and used the device before it joined the others. Call popdist.init() "
    "first: before a device is configured, and before any computation."
)
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


def is_joined(count: int) -> bool:
    """Returns whether so many instances were joined, this one among them."""
    return _GROUP.value is not None and _GROUP.value.place.count == count


def join() -> InstanceGroup | None:
    """Joins the other instances of this program, once; returns them, None if this process is the only one.

    Raises:
        InstanceError: if JAX runs already, nothing says where instance 0 listens, or the others do not come in time.
    """
    own = place()
    if own.count == 1 or _GROUP.value is not None:
        return _GROUP.value
    timeout, unknown = instance_timeout(), _unknown_host()
    try:
        coordination = Coordination(own, timeout)
    except (ValueError, IndexError) as error:  # JAX splits an empty address
        raise InstanceError(f"{_LISTENING} JAX says: {error}") from error
    except RuntimeError as error:
        if "runs already" in str(error):
            raise InstanceError(_TOO_LATE.format(count=own.count)) from None
        raise InstanceError(
            f"Instance {own.index} of {own.count} could not join the others within {timeout:.0f} seconds "
            f"(IPU_TF_INSTANCE_TIMEOUT sets them): {str(error).splitlines()[0]}{unknown}"
        ) from error
    _GROUP.value = others = InstanceGroup(own, coordination, timeout)
    others.memory = memory.shared(own.index, own.count, timeout, others.exchange)
    atexit.register(functools.partial(_leave_at_exit, _GROUP.value))
    return _GROUP.value


def _unknown_host() -> str:
    """Returns what to say, and warns, if the host of instance 0 has no address here, maybe yet; else an empty text."""
    host = coordinator_host()
    try:
        if host:
            socket.getaddrinfo(host, None)
    except OSError as error:
        said = f"JAX_COORDINATOR_ADDRESS names the host '{host}', which has no address on this machine: {error}"
        _log.warning("ipu_tf: %s. Waiting for it.", said)
        return f" {said}."
    return ""


def leave() -> None:
    """Leaves the other instances, if they were joined."""
    joined, _GROUP.value = _GROUP.value, None
    if joined is not None:
        joined.leave()


def _leave_at_exit(joined: InstanceGroup) -> None:
    if _GROUP.value is joined:
        leave()
