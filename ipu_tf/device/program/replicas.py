"""Replicas: copies of one program, each on data and state of its own, that meet in collectives.

    replica 0   x[0] ──► program ─┐
    replica 1   x[1] ──► program ─┤ collectives over the axis `replica`
    replica 2   x[2] ──► program ─┘

Arrays of a replicated program carry a leading axis of replicas. Where JAX has a device for each replica, each runs on
its own (`shard_map`); otherwise one device runs all of them side by side (`vmap`). Both give the same numbers.
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

AXIS = "replica"
"""The name of the axis of replicas, as collectives use it."""


@dataclasses.dataclass(frozen=True)
class Replicas:
    """How many replicas a program runs as, and on what.

    Attributes:
        count: how many.
        devices: one JAX device for each replica; empty where one device, the default one, runs all of them.
    """

    count: int = 1
    devices: tuple[Any, ...] = ()

    def over(self, function: Callable[..., Any], in_axes: Any, out_axes: Any) -> Callable[..., Any]:
        """A function of one replica's arrays as a function of all replicas' arrays.

        Args:
            function: traceable by JAX.
            in_axes: for each argument where its axis of replicas is, None for one that all replicas share; a tree
                that is a prefix of the arguments' trees.
            out_axes: the same for the results.
        """
        if self.count == 1:
            return function
        if self.devices:
            return self._on_devices(function, in_axes, out_axes)
        return jax.vmap(function, in_axes, out_axes, axis_size=self.count, axis_name=AXIS)

    def spread(self, value: Any, shape: tuple[int, ...]) -> jax.Array:
        """A value of one replica's `shape` on every replica; one that has the axis of replicas is only placed."""
        if self.count == 1:
            return value
        if np.ndim(value) == len(shape):
            value = jnp.broadcast_to(value, (self.count, *shape))
        return self.place(value, 0)

    def place(self, array: Any, axis: int | None) -> jax.Array:
        """An array, with its replicas along `axis` (None for one that they share), where the replicas run."""
        if not self.devices:
            return jax.device_put(array)
        if self.count == 1:
            return jax.device_put(array, self.devices[0])
        return jax.device_put(array, NamedSharding(_mesh(self.devices), _spec(axis)))

    def where(self) -> tuple[Any, ...]:
        """The JAX devices that they run on."""
        return self.devices or (jax.local_devices()[0],)

    def first(self, array: Any) -> Any:
        """Replica 0 of an array with a leading axis of replicas."""
        return array if self.count == 1 else array[0]

    def with_axis(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with its axis of replicas in front; one replica has none."""
        return shape if self.count == 1 else (self.count, *shape)

    def _on_devices(self, function: Callable[..., Any], in_axes: Any, out_axes: Any) -> Callable[..., Any]:
        def of_one(*arguments: Any) -> Any:
            own = _squeeze_axes(lambda array, axis: lax.squeeze(array, (axis,)), in_axes, arguments)
            return _squeeze_axes(lambda array, axis: jnp.expand_dims(array, axis), out_axes, function(*own))

        specs = [jax.tree.map(_spec, axes, is_leaf=_is_none) for axes in (in_axes, out_axes)]
        # Loops start from constants and go on with what depends on the replica: varying-axis types forbid that.
        return jax.shard_map(of_one, mesh=_mesh(self.devices), in_specs=specs[0], out_specs=specs[1], check_vma=False)


def replicas(count: int, together: bool = False) -> Replicas:
    """`count` replicas, each on a JAX device of its own if there are as many.

    Args:
        count: how many.
        together: keep them on one device: JAX keeps no order between calls to the host from several.
    """
    devices = () if together else tuple(jax.local_devices())
    return Replicas(count, devices[:count] if 1 < count <= len(devices) else ())


def any_replica(values: jax.Array | bool) -> jax.Array:
    """Whether any replica says yes, as a value that all replicas share."""
    return lax.pmax(jnp.asarray(values, jnp.int32), AXIS) > 0


def _squeeze_axes(change: Callable[[Any, int], Any], axes: Any, tree: Any) -> Any:
    """`change(leaf, axis)` for every leaf of `tree` that has an axis of replicas."""

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
