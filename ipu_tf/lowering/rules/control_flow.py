"""Calls, loops and branches. Hidden state travels with the values that the program names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.lowering.op import Op
from ipu_tf.lowering.rules.registry import rule


@rule("func.call")
def _call(importer: Any, op: Op, *operands: jax.Array) -> list[jax.Array]:
    return importer.run_function(op.text("callee").lstrip("@").strip('"'), operands)


@rule("stablehlo.while")
def _while(importer: Any, op: Op, *operands: jax.Array) -> list[jax.Array]:
    condition_block, body_block = op.regions

    def condition(carry: Any) -> jax.Array:
        with importer.branch(carry[0]):
            (going_on,) = importer.run_block(condition_block, carry[1])
        return jnp.reshape(going_on, ())

    def body(carry: Any) -> Any:
        with importer.branch(carry[0]) as hidden:
            values = importer.run_block(body_block, carry[1])
        return hidden, tuple(values)

    start = tuple(jnp.asarray(value) for value in operands)
    importer.hidden, values = lax.while_loop(condition, body, (importer.hidden, start))
    return list(values)


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
    importer.hidden, values = lax.switch(index, [branch(block) for block in blocks], importer.hidden)
    return list(values)
