"""`Replicas`: maps a function over replicas by `vmap` or `shard_map`, with a named axis for collectives.

    replica 0   x[0] ──► program ─┐
    replica 1   x[1] ──► program ─┤ collectives over the axis `replica`
    replica 2   x[2] ──► program ─┘

Arrays of a replicated program carry a leading axis of replicas. Where JAX has a device for each replica, each runs on
its own (`shard_map`); otherwise one device runs all of them side by side (`vmap`). Both give the same numbers.

In a program of several instances, arrays are those of this instance's replicas, and there is an axis of instances
around the one of replicas: collectives go over both. The first device of each instance runs its replicas.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ipu_tf.device.instances.across import INSTANCES, over_instances, program_instances
from ipu_tf.device.instances.sums import max_over_instances

AXIS = "replica"
"""The name of the axis of replicas, as collectives use it."""


@dataclasses.dataclass(frozen=True)
class Replicas:
    """Number of replicas of a program, and their JAX devices.

    Attributes:
        count: how many.
        devices: one JAX device for each replica; empty where one device, the default one, runs all of them.
        instances: how many instances run the program, each with as many replicas.
    """

    count: int = 1
    devices: tuple[Any, ...] = ()
    instances: int = 1

    def over(self, function: Callable[..., Any], in_axes: Any, out_axes: Any) -> Callable[..., Any]:
        """Maps a function of one replica's arrays over all replicas' arrays.

        Args:
            function: traceable by JAX.
            in_axes: for each argument where its axis of replicas is, None for one that all replicas share; a tree
                that is a prefix of the arguments' trees.
            out_axes: the same for the results.
        """
        if self.devices and self.count > 1:
            return self._on_devices(function, in_axes, out_axes)
        if self.count > 1:
            function = jax.vmap(function, in_axes, out_axes, axis_size=self.count, axis_name=AXIS)
        return over_instances(function) if self.instances > 1 else function

    def spread(self, value: Any, shape: tuple[int, ...]) -> jax.Array:
        """Broadcasts a value of one replica's `shape` to all replicas; a value with a replica axis is only moved."""
        if self.count == 1:
            return value
        if np.ndim(value) == len(shape):
            value = jnp.broadcast_to(value, (self.count, *shape))
        return self.place(value, 0)

    def place(self, array: Any, axis: int | None) -> jax.Array:
        """Moves an array with its replicas along `axis` (None for a shared one) to the replicas' devices."""
        if not self.devices:
            return jax.device_put(array)
        if self.count == 1:
            return jax.device_put(array, self.devices[0])
        return jax.device_put(array, NamedSharding(_mesh(self.devices), _spec(axis)))

    def where(self) -> tuple[Any, ...]:
        """The JAX devices that they run on."""
        return self.devices or (jax.local_devices()[0],)

    def first(self, array: Any) -> Any:
        """Returns replica 0 of an array with a leading replica axis."""
        return array if self.count == 1 else array[0]

    def with_axis(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape with a leading replica axis; one replica has none."""
        return shape if self.count == 1 else (self.count, *shape)

    def _on_devices(self, function: Callable[..., Any], in_axes: Any, out_axes: Any) -> Callable[..., Any]:
        def of_one(*arguments: Any) -> Any:
            own = _squeeze_axes(lambda array, axis: lax.squeeze(array, (axis,)), in_axes, arguments)
            return _squeeze_axes(lambda array, axis: jnp.expand_dims(array, axis), out_axes, function(*own))

        specs = [jax.tree.map(_spec, axes, is_leaf=_is_none) for axes in (in_axes, out_axes)]
        # Loops start from constants and go on with what depends on the replica: varying-axis types forbid that.
        return jax.shard_map(of_one, mesh=_mesh(self.devices), in_specs=specs[0], out_specs=specs[1], check_vma=False)


def replicas(count: int, together: bool = False) -> Replicas:
    """Returns `count` replicas of each instance, each on its own JAX device if there are enough.

    Args:
        count: how many.
        together: keep them on one device: JAX does not order host callbacks from several devices.
    """
    instances = program_instances()
    devices = () if together or instances > 1 else tuple(jax.local_devices())
    return Replicas(count, devices[:count] if 1 < count <= len(devices) else (), instances)


def replica_axes_of(count: int) -> list[tuple[str, int]] | None:
    """Returns the axes, with their sizes, by which JAX traces a replica's function outside of the map over replicas."""
    instances = program_instances()
    axes = [(INSTANCES, instances)] * (instances > 1) + [(AXIS, count)] * (count > 1)
    return axes or None


def any_replica(values: jax.Array | bool) -> jax.Array:
    """Logical or over the replicas of all instances, the same value on all of them."""
    found = jnp.asarray(values, jnp.int32)
    found = lax.pmax(found, AXIS) if has_axis(AXIS) else found
    found = max_over_instances(found) if has_axis(INSTANCES) else found
    return found > 0


def has_axis(name: str) -> bool:
    """Returns whether what is traced now is mapped over an axis."""
    try:
        lax.axis_size(name)
    except NameError:
        return False
    return True


def _squeeze_axes(change: Callable[[Any, int], Any], axes: Any, tree: Any) -> Any:
    """Applies `change(leaf, axis)` to every leaf of `tree` that has a replica axis."""

    def under(axis: int | None, part: Any) -> Any:
        return part if axis is None else jax.tree.map(lambda leaf: change(leaf, axis), part)

    return jax.tree.map(under, axes, tree, is_leaf=_is_none)


def _spec(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, AXIS)


def _is_none(leaf: Any) -> bool:
    return leaf is None


@functools.cache
def _mesh(devices: tuple[Any, ...]) -> Mesh:
    return Mesh(np.array(devices), (AXIS,))
