"""Rules for markers of collectives between replicas: all-reduce, all-gather, all-to-all, reduce-scatter."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipu_tf.device.errors import ReplicaGroupError
from ipu_tf.device.program import collectives
from ipu_tf.lowering.importer.rules.registry import ArithmeticKind, custom_call_rule, rule
from ipu_tf.lowering.stablehlo.module import configuration
from ipu_tf.lowering.stablehlo.op import Op


@rule("stablehlo.replica_id")
def _replica_id(importer: Any, op: Op) -> jax.Array:
    return jnp.asarray(collectives.replica_index(importer.replicas), jnp.uint32)


@custom_call_rule("ipu.replica_index")
def _replica_index(importer: Any, op: Op) -> jax.Array:
    return collectives.replica_index(importer.replicas)


@custom_call_rule("ipu.all_reduce", arithmetic=ArithmeticKind.WHOLE)
def _all_reduce(importer: Any, op: Op, *values: jax.Array) -> list[jax.Array]:
    settings = configuration(op.operation)
    group = _checked_group(settings["group"], collectives.total(importer.replicas))
    return collectives.all_reduce_each(values, settings["operation"], importer.replicas, group)


@custom_call_rule("ipu.all_gather")
def _all_gather(importer: Any, op: Op, *values: jax.Array) -> list[jax.Array]:
    _check_factor(op, collectives.total(importer.replicas))
    return [collectives.all_gather(value, importer.replicas) for value in values]


@custom_call_rule("ipu.all_to_all")
def _all_to_all(importer: Any, op: Op, value: jax.Array) -> jax.Array:
    _check_factor(op, collectives.total(importer.replicas))
    settings = configuration(op.operation)
    return collectives.all_to_all(value, settings["split"], settings["concat"], importer.replicas)


@custom_call_rule("ipu.reduce_scatter", arithmetic=ArithmeticKind.WHOLE)
def _reduce_scatter(importer: Any, op: Op, *values: jax.Array) -> list[jax.Array]:
    _check_factor(op, collectives.total(importer.replicas))
    operation = configuration(op.operation)["operation"]
    return [collectives.reduce_scatter(value, operation, importer.replicas) for value in values]


def _checked_group(group: int | None, replicas: int) -> int | None:
    if group is not None and replicas % group:
        raise ReplicaGroupError(group, replicas)
    return group


def _check_factor(op: Op, replicas: int) -> None:
    factor = configuration(op.operation)["replication_factor"]
    if factor != replicas:
        raise ValueError(
            f"`{op.origin}` was given replication_factor={factor}, but the program runs as {replicas} replicas: as "
            "many as the IPUs of its device allow. Give it that number, or configure another number of IPUs."
        )
