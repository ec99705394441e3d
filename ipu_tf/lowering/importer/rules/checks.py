"""Rules for assertion markers: record the first failed check in the hidden state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.numerics.assertions import ASSERTIONS, noted
from ipu_tf.lowering.importer.rules.registry import custom_call_rule
from ipu_tf.lowering.stablehlo.check_markers import CHECK, LIST_ITEMS, NAN_SUMMARY, RANDOM_INTEGERS
from ipu_tf.lowering.stablehlo.module import configuration
from ipu_tf.lowering.stablehlo.op import Op

Settings = dict[str, Any]
Failure = tuple[jax.Array, Sequence[jax.Array]]


@custom_call_rule(CHECK)
def _check(importer: Any, op: Op, *operands: jax.Array) -> np.ndarray:
    settings = configuration(op.operation)
    failed, shown = failure(settings, *map(jnp.asarray, operands))
    state = importer.hidden[ASSERTIONS]
    importer.hidden[ASSERTIONS] = noted(state, failed, settings["number"], shown, settings["summarize"])
    return np.zeros((), np.int32)


def failure(settings: Settings, *operands: jax.Array) -> Failure:
    """Evaluates a check.

    Args:
        settings: the configuration of its marker.
        operands: of its marker.

    Returns:
        Whether it failed, `bool[]`, and the tensors that its message shows.
    """
    return _FAILURES[settings["kind"]](settings, *operands)


@custom_call_rule(NAN_SUMMARY)
def _nan_summary(importer: Any, op: Op, value: jax.Array) -> jax.Array:
    kinds = np.array([-np.inf, np.inf, np.nan], np.float32)
    return jnp.where(_not_finite(value), kinds, np.float32(0))


def _asserted(settings: Settings, condition: jax.Array, *data: jax.Array) -> Failure:
    return ~jnp.reshape(condition, ()), data


def _numerics(settings: Settings, value: jax.Array) -> Failure:
    found = _not_finite(value)
    return jnp.any(found), [found]


def _outside_list(settings: Settings, index: jax.Array, length: jax.Array) -> Failure:
    outside, _, value = _first((index < 0) | (index >= length), index)
    return outside, [value, jnp.reshape(length, ())]


def _outside_sequence(settings: Settings, sequences: jax.Array, lengths: jax.Array) -> Failure:
    size = sequences.shape[settings["axis"]]
    outside, place, value = _first((lengths < 0) | (lengths > size), lengths)
    return outside, [place, value, jnp.int32(size), jnp.int32(settings["axis"])]


def _no_permutation(settings: Settings, order: jax.Array) -> Failure:
    places = jnp.arange(order.size, dtype=np.int32)
    outside = (order < 0) | (order >= order.size)
    inside = jnp.where(outside, 0, order)
    first = jnp.full(order.size, order.size, np.int32).at[inside].min(places)
    wrong, place, value = _first(outside | (first[inside] != places), order)
    return wrong, [place, value, jnp.int32(order.size)]


def _first(wrong: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns whether any of some values is wrong, and the place of the first one and its value, `int32[]`."""
    wrong, values = jnp.append(wrong, False), jnp.append(values, values.dtype.type(0))
    place, limits = jnp.argmax(wrong).astype(np.int32), np.iinfo(np.int32)
    return jnp.any(wrong), place, jnp.clip(values[place], limits.min, limits.max).astype(np.int32)


def _empty_range(settings: Settings, least: jax.Array, limit: jax.Array) -> Failure:
    return jnp.reshape(least >= limit, ()), [least, limit]


def _not_finite(value: jax.Array) -> jax.Array:
    """Tests for -inf, +inf and NaN: `bool[3]`."""
    value = jnp.asarray(value)
    return jnp.stack([jnp.any(value == -jnp.inf), jnp.any(value == jnp.inf), jnp.any(jnp.isnan(value))])


_FAILURES: dict[str, Callable[..., Failure]] = {
    "Assert": _asserted,
    **dict.fromkeys(("CheckNumerics", "CheckNumericsV2"), _numerics),
    **dict.fromkeys(LIST_ITEMS, _outside_list),
    "ReverseSequence": _outside_sequence,
    "InvertPermutation": _no_permutation,
    **dict.fromkeys(RANDOM_INTEGERS, _empty_range),
}
