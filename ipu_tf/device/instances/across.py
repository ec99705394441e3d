"""Runs a compiled function in all instances at once: one program, on one JAX device of each.

    instance 0   arrays ─► device 0 ─┐
                                     ├─ sums over the axis `instance`: shared memory, or XLA's collectives (gloo, NCCL)
    instance 1   arrays ─► device 0 ─┘

Each instance passes its own arrays and gets its own results. To JAX every argument is one array that all devices hold a
copy of; the copies differ, and nothing but the mapped function looks at them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.instances.group import InstanceError, InstanceGroup
from ipu_tf.device.instances.joined import group
from ipu_tf.device.instances.order import in_one_order

INSTANCES = "instance"
"""The name of the axis of instances, as collectives use it."""
_together = register_state("instances that run programs together", ProcessValue(1))


def run_programs_together(instances: int) -> None:
    """Sets how many instances run the programs that are made from now on; 1 for this one alone."""
    _together.value = instances


def program_instances() -> int:
    """Returns how many instances run the programs that are made now."""
    return _together.value


def first_replica(replicas: int) -> int:
    """Returns the index of this instance's first replica in programs of so many replicas in each instance."""
    others = group()
    return 0 if others is None or program_instances() == 1 else others.place.index * replicas


def given_to_all(array: np.ndarray[Any, Any], what: str) -> np.ndarray[Any, Any]:
    """Returns the array that instance 0 gives; this instance's own if it runs programs alone.

    Args:
        array: this instance's, of the same shape and dtype in all.
        what: what it is, for errors, and by which it is found.

    Raises:
        InstanceError: if another instance has another shape or dtype, ended, or does not come in time.
    """
    others = group()
    if others is None or program_instances() == 1:
        return array
    own = f"{array.dtype}{list(array.shape)}\n".encode()
    values = others.exchange(what, own + (array.tobytes() if others.place.index == 0 else b""))
    layouts = [value.partition(b"\n")[0].decode() for value in values]
    if len(set(layouts)) > 1:
        each = ", ".join(f"instance {index} has {layout}" for index, layout in enumerate(layouts))
        raise InstanceError(f"Instances must have the same shape and dtype of {what}. Received: {each}.")
    return np.frombuffer(bytearray(values[0][len(own) :]), array.dtype).reshape(array.shape)


def over_instances(function: Callable[..., Any]) -> Callable[..., Any]:
    """Maps a function over the axis of instances."""
    whole = PartitionSpec()
    return jax.shard_map(in_one_order(function), mesh=_mesh(), in_specs=whole, out_specs=whole, check_vma=False)


class FunctionOfInstances:
    """A compiled function that all instances call, each with arrays of its own.

    Args:
        function: compiled from one that `over_instances` mapped.
        what: the program, for errors.
    """

    def __init__(self, function: Callable[..., Any], what: str) -> None:
        self._function = function
        self._what = what

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function; waits for its results.

        Raises:
            InstanceError: if another instance ended, or is gone.
        """
        others = group()
        assert others is not None, "programs of several instances are made after these were joined"
        if not others.connected:
            _connect(others)
        with others.in_program(self._what):
            results = self._function(*jax.tree.map(_shared, arguments))
            return jax.block_until_ready(jax.tree.map(_own, results))


def _connect(others: InstanceGroup) -> None:
    """Connects the instances for XLA's collectives.

    The first one connects them, and XLA waits 30 seconds for that: one may compile that much longer than another. So
    they meet before.
    """
    others.exchange("the first program", b"")
    summed = jax.jit(over_instances(lambda x: jax.lax.psum(x, INSTANCES)))
    with others.in_program("connections"):
        jax.block_until_ready(summed(_shared(np.zeros((), np.int32))))
    others.connected = True


def _shared(array: Any) -> jax.Array:
    """Makes an array of this instance the copy that its device has of one array of all instances."""
    device = jax.local_devices()[0]
    own = array if isinstance(array, jax.Array) and array.devices() == {device} else jax.device_put(array, device)
    return jax.make_array_from_single_device_arrays(own.shape, _copied(), [own])


def _own(array: jax.Array) -> jax.Array:
    return array.addressable_data(0)


@functools.cache
def _copied() -> NamedSharding:
    """Returns the sharding by which every instance has a copy."""
    return NamedSharding(_mesh(), PartitionSpec())


@functools.cache
def _mesh() -> Mesh:
    """Returns the first device of each instance."""
    first: dict[int, Any] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return Mesh(np.array([first[instance] for instance in sorted(first)]), (INSTANCES,))
