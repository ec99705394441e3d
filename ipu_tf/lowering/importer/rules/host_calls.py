"""Rules for host callbacks: embedding tables, printing, checks of micro-batch counts, in program order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from jax import lax

from ipu_tf.device.feeds import callbacks
from ipu_tf.device.instances.sums import gather_over_instances
from ipu_tf.device.memory.host_tables import host_table
from ipu_tf.device.program.replicas import AXIS, INSTANCES, has_axis
from ipu_tf.lowering.importer.rules.registry import custom_call_rule
from ipu_tf.lowering.stablehlo.module import configuration
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.tensorflow.host_calls import HOST_APPLY, HOST_LOOKUP, HOST_UPDATE, PIPELINE_DEPTH, PRINT

# Ordered callbacks keep the order that the tokens gave to the program's text.
_TOKEN = np.zeros((), np.int32)


@custom_call_rule(HOST_LOOKUP)
def _host_lookup(importer: Any, op: Op, indices: jax.Array, token: jax.Array) -> list[jax.Array]:
    name = configuration(op.operation)["table"]
    return _call(importer, op, lambda i: [host_table(name).lookup(i), _TOKEN], [indices])


@custom_call_rule(HOST_UPDATE)
def _host_update(importer: Any, op: Op, indices: jax.Array, changes: jax.Array, token: jax.Array) -> list[jax.Array]:
    name, lookup = configuration(op.operation)["table"], op.origin
    replica = lax.axis_index(AXIS) if importer.replicas > 1 else jnp.int32(0)

    def update(indices: np.ndarray, changes: np.ndarray, replica: np.ndarray) -> list[np.ndarray]:
        host_table(name).update(indices, changes, (lookup, 0, int(replica)))
        return [_TOKEN]

    def update_of_all(
        there: np.ndarray, indices: np.ndarray, changes: np.ndarray, replica: np.ndarray
    ) -> list[np.ndarray]:
        for instance in map(int, np.flatnonzero(there)):
            giver = (lookup, instance, int(replica[instance]))
            host_table(name).update(indices[instance], changes[instance], giver)
        return [_TOKEN]

    if not has_axis(INSTANCES):
        return _call(importer, op, update, [indices, changes, replica])
    # Each instance has a table of its own, to which it adds the changes of all instances.
    active = jnp.bool_(True) if importer.active is None else importer.active
    given = [gather_over_instances(value) for value in (active, indices, changes, replica)]
    return list(callbacks.call_host(update_of_all, tuple(op.results), *given, replicas=importer.replicas))


@custom_call_rule(HOST_APPLY)
def _host_apply(importer: Any, op: Op, token: jax.Array) -> list[jax.Array]:
    name = configuration(op.operation)["table"]

    def apply() -> list[np.ndarray]:
        host_table(name).apply()
        return [_TOKEN]

    return _call(importer, op, apply, [])


@custom_call_rule(PRINT)
def _print(importer: Any, op: Op, value: jax.Array, token: jax.Array) -> list[jax.Array]:
    name = configuration(op.operation)["name"] or op.origin

    def write(array: np.ndarray) -> list[np.ndarray]:
        print(f"{name}: {np.array2string(array, threshold=sys.maxsize)}", file=sys.stderr, flush=True)
        return [_TOKEN]

    return _call(importer, op, write, [value])


def _call(
    importer: Any, op: Op, function: Callable[..., list[np.ndarray]], operands: list[jax.Array]
) -> list[jax.Array]:
    return list(
        callbacks.call_host(function, tuple(op.results), *operands, replicas=importer.replicas, active=importer.active)
    )


@custom_call_rule(PIPELINE_DEPTH)
def _micro_batch_count(importer: Any, op: Op, count: jax.Array) -> list[jax.Array]:
    overlap = configuration(op.operation)["overlap"]

    def checked(value: np.ndarray) -> list[np.ndarray]:
        if value < overlap or value % overlap:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Pipeline depth is invalid. Check that pipeline depth is divisible by the overlap length "
                f"({overlap}) and pipeline depth is >= {overlap}.\nReceived: {int(value)}.",
            )
        return [value]

    return list(
        callbacks.call_host(checked, tuple(op.results), count, replicas=importer.replicas, active=importer.active)
    )
