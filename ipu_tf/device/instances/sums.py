"""Sums, gathers and maxima over the instances, as programs compute them; traced by JAX.

    the instances share memory    ─► a native call, `instance_sum.c`
    other hosts, other devices    ─► XLA's collectives (gloo, NCCL)

All of a program's go the same way: one that waited in XLA for another that waits in the memory would wait for ever.
"""

from __future__ import annotations

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.convolution.native import library
from ipu_tf.device.instances.across import INSTANCES
from ipu_tf.device.instances.order import through_memory

_SUM, _GATHER = 0, 1
_SUMMED = (np.float32, np.float64, np.int32)
"""What the native call adds up; others are gathered, and added here."""


def sum_over_instances(value: jax.Array) -> jax.Array:
    """Sums the instances' values, in their order where they share memory: the same bits in all."""
    if not through_memory():
        return lax.psum(value, INSTANCES)
    if value.dtype in _SUMMED:
        return _summed(value)
    rows = gather_over_instances(value)
    return functools.reduce(operator.add, (rows[instance] for instance in range(rows.shape[0])))


def gather_over_instances(value: jax.Array, tiled: bool = False) -> jax.Array:
    """Gathers the instances' values: `[instances, *shape]`.

    Args:
        value: this instance's.
        tiled: join them along their first axis.
    """
    if not through_memory():
        return lax.all_gather(value, INSTANCES, tiled=tiled)
    rows = _gathered(value)
    return rows.reshape(-1, *value.shape[1:]) if tiled else rows


def max_over_instances(value: jax.Array) -> jax.Array:
    """Returns the largest of the instances' values, element by element."""
    return jnp.max(gather_over_instances(value), 0) if through_memory() else lax.pmax(value, INSTANCES)


def min_over_instances(value: jax.Array) -> jax.Array:
    """Returns the smallest of the instances' values, element by element."""
    return jnp.min(gather_over_instances(value), 0) if through_memory() else lax.pmin(value, INSTANCES)


@jax.custom_vjp
def _summed(value: jax.Array) -> jax.Array:
    return _call(value, value.shape, _SUM)


_summed.defvjp(lambda value: (_summed(value), None), lambda _, gradient: (_summed(gradient),))


@jax.custom_vjp
def _gathered(value: jax.Array) -> jax.Array:
    if jnp.iscomplexobj(value):
        return lax.complex(_gathered(jnp.real(value)), _gathered(jnp.imag(value)))
    octets = value.astype(np.uint8) if value.dtype == np.bool_ else lax.bitcast_convert_type(value, np.uint8)
    rows = _call(octets, (lax.axis_size(INSTANCES), *octets.shape), _GATHER)
    return rows.astype(np.bool_) if value.dtype == np.bool_ else lax.bitcast_convert_type(rows, value.dtype)


_gathered.defvjp(
    lambda value: (_gathered(value), None),
    lambda _, gradient: (sum_over_instances(gradient)[lax.axis_index(INSTANCES)],),
)


def _call(value: jax.Array, shape: tuple[int, ...], mode: int) -> jax.Array:
    """Calls the native function; `in_one_order` gives it the token of the call before."""
    results = (jax.ShapeDtypeStruct(shape, value.dtype), jax.ShapeDtypeStruct((1,), np.int32))
    target = library.needed().target(library.INSTANCE_SUM)
    call = jax.ffi.ffi_call(target, results, vmap_method="sequential", has_side_effect=True)
    result: jax.Array = call(value, np.zeros(1, np.int32), mode=np.array([mode], np.int64))[0]
    return result
