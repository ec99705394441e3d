"""Rules for assertion markers: record the first failed check in the hidden state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.numerics.assertions import ASSERTIONS, noted
from ipu_tf.lowering.importer.rules.registry import custom_call_rule
from ipu_tf.lowering.stablehlo.checks import CHECK, NAN_SUMMARY
from ipu_tf.lowering.stablehlo.module import configuration
from ipu_tf.lowering.stablehlo.op import Op


@custom_call_rule(CHECK)
def _check(importer: Any, op: Op, *operands: jax.Array) -> np.ndarray:
    settings = configuration(op.operation)
    failed, shown = _FAILURES[settings["kind"]](*map(jnp.asarray, operands))
    state = importer.hidden[ASSERTIONS]
    importer.hidden[ASSERTIONS] = noted(state, failed, settings["number"], shown, settings["summarize"])
    return np.zeros((), np.int32)


@custom_call_rule(NAN_SUMMARY)
def _nan_summary(importer: Any, op: Op, value: jax.Array) -> jax.Array:
    kinds = np.array([-np.inf, np.inf, np.nan], np.float32)
    return jnp.where(_not_finite(value), kinds, np.float32(0))


def _asserted(condition: jax.Array, *data: jax.Array) -> tuple[jax.Array, Sequence[jax.Array]]:
    return ~jnp.reshape(condition, ()), data


def _numerics(value: jax.Array) -> tuple[jax.Array, Sequence[jax.Array]]:
    found = _not_finite(value)
    return jnp.any(found), [found]


def _growth(index: jax.Array, length: jax.Array) -> tuple[jax.Array, Sequence[jax.Array]]:
    return (index < 0) | (index >= length), [index, length]


def _not_finite(value: jax.Array) -> jax.Array:
    """Tests for -inf, +inf and NaN: `bool[3]`."""
    value = jnp.asarray(value)
    return jnp.stack([jnp.any(value == -jnp.inf), jnp.any(value == jnp.inf), jnp.any(jnp.isnan(value))])


_FAILURES: dict[str, Callable[..., tuple[jax.Array, Sequence[jax.Array]]]] = {
    "Assert": _asserted,
    "CheckNumerics": _numerics,
    "CheckNumericsV2": _numerics,
    "TensorListSetItem": _growth,
}
