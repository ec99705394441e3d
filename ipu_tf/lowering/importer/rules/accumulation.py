"""Rules for markers with state that lasts as long as a loop: gradient accumulators, iteration counter, FIFO."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.memory.hidden_state import ITERATION
from ipu_tf.lowering.importer.rules.registry import ArithmeticKind, custom_call_rule
from ipu_tf.lowering.stablehlo.module import configuration
from ipu_tf.lowering.stablehlo.needed_hidden_state import ACCUMULATE, FIFO, ITERATION_COUNTER, UPDATE_DUE
from ipu_tf.lowering.stablehlo.op import Op


@custom_call_rule(ACCUMULATE, arithmetic=ArithmeticKind.WHOLE)
def _accumulate(importer: Any, op: Op, value: jax.Array, *count: jax.Array) -> jax.Array:
    settings = configuration(op.operation)
    number = importer.hidden[ITERATION] % _count(settings, count)
    before = importer.hidden[settings["key"]]
    value = jnp.asarray(value, before.dtype)
    # A number of mini-batches is exact in float32, not in half precision.
    position = jnp.asarray(number, jnp.float32)
    if settings["method"] == "MEAN":
        value = value * jnp.asarray(1.0 / jnp.asarray(_count(settings, count), jnp.float32), value.dtype)
    if settings["method"] == "RUNNING_MEAN":
        share = 1 / (position + 1)
        before = before * jnp.asarray(position * share, before.dtype)
        value = value * jnp.asarray(share, value.dtype)
    after = jnp.where(number == 0, value, before + value)
    importer.hidden[settings["key"]] = after
    return after


@custom_call_rule(UPDATE_DUE)
def _update_due(importer: Any, op: Op, *count: jax.Array) -> jax.Array:
    total = _count(configuration(op.operation), count)
    return importer.hidden[ITERATION] % total == total - 1


@custom_call_rule(ITERATION_COUNTER)
def _iteration(importer: Any, op: Op) -> jax.Array:
    return importer.hidden[ITERATION]


@custom_call_rule(FIFO)
def _fifo(importer: Any, op: Op, value: jax.Array) -> jax.Array:
    key = configuration(op.operation)["key"]
    line = importer.hidden[key]
    importer.hidden[key] = jnp.concatenate([line[1:], jnp.asarray(value)[None]])
    return lax.index_in_dim(line, 0, 0, keepdims=False)


def _count(settings: dict[str, Any], operand: tuple[jax.Array, ...]) -> Any:
    """Returns the gradient accumulation count: a constant of the program, or a computed value."""
    return jnp.reshape(operand[0], ()) if operand else jnp.int32(settings["count"])
