"""Calls, loops and branches. Hidden state travels with the values that the program names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.memory.hidden_state import ITERATION
from ipu_tf.lowering.importer.rules.branch_rows import empty_rows, give_rows
from ipu_tf.lowering.importer.rules.deferred_products import DeferredProducts, deferred_products
from ipu_tf.lowering.importer.rules.registry import rule
from ipu_tf.lowering.stablehlo.accumulation_rules import check_accumulation
from ipu_tf.lowering.stablehlo.hidden_state import keys_used
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.stablehlo.trip_count import most_trips


@rule("func.call")
def _call(importer: Any, op: Op, *operands: jax.Array) -> list[jax.Array]:
    return importer.run_function(op.text("callee").lstrip("@").strip('"'), operands)


@rule("stablehlo.while")
def _while(importer: Any, op: Op, *operands: jax.Array) -> list[jax.Array]:
    condition_block, body_block = op.regions
    check_accumulation(importer.module, op.operation, operands)
    trips = most_trips(importer.module, op.operation)
    if trips == 0:
        return list(operands)  # XLA runs one with steps of more than 1 once
    outer, inner = _parted(importer, op)
    if ITERATION in inner:
        inner[ITERATION] = jnp.int32(0)

    def condition(carry: Any) -> jax.Array:
        with importer.branch(carry[0]):
            (going_on,) = importer.run_block(condition_block, carry[1])
        return jnp.reshape(going_on, ())

    deferred = deferred_products(op.operation, trips) if importer.arithmetic is None else None

    def body(carry: Any) -> Any:
        hidden, values, kept = carry
        with importer.branch(hidden) as after:
            results = importer.run_block(body_block, values)
            kept = kept if deferred is None else _kept(deferred, kept, importer)
        if ITERATION in after:
            after[ITERATION] = after[ITERATION] + 1
        results = results if deferred is None else deferred.unchanged(values, results)
        return after, tuple(results), kept

    start = tuple(jnp.asarray(value) for value in operands)
    room: Any = () if deferred is None else (jnp.int32(0), deferred.room())
    inner, values, kept = lax.while_loop(condition, body, (inner, start, room))
    importer.hidden.update(inner | outer)
    return list(values) if deferred is None else deferred.totals(values, kept[1])


def _kept(deferred: DeferredProducts, kept: Any, importer: Any) -> Any:
    trip, room = kept
    return trip + 1, deferred.kept(room, importer.read(deferred.names), trip)


@rule("stablehlo.case", "stablehlo.if")
def _case(importer: Any, op: Op, which: jax.Array) -> list[jax.Array]:
    blocks = op.regions
    if op.name == "stablehlo.if":
        blocks = blocks[::-1]

    def branch(block: Any) -> Any:
        def run(hidden: dict[str, jax.Array]) -> Any:
            with importer.branch(hidden) as after:
                values = importer.run_block(block, ())
            return after, tuple(jnp.asarray(value) for value in values)

        return run

    # StableHLO: an index out of range takes the last branch; `lax.switch` clamps, which differs below zero.
    index = jnp.reshape(which, ()).astype(jnp.int32)
    index = jnp.where(index < 0, len(blocks) - 1, index)
    _, inner = _parted(importer, op)
    rows = empty_rows(importer, blocks)
    inner, values = lax.switch(index, [branch(block) for block in blocks], inner | rows)
    give_rows(importer, {key: inner.pop(key) for key in rows})
    importer.hidden.update(inner)
    return list(values)


def _parted(importer: Any, op: Op) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hidden state that is to be as it was after a loop, and what the op's regions use."""
    used = keys_used(importer.module, op.operation)
    inner = {key: value for key, value in importer.hidden.items() if key in used}
    return {key: value for key, value in inner.items() if key == ITERATION}, inner
