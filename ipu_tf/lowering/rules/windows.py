"""Reductions over sliding windows, and the gradients of pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from ipu_tf.lowering.op import Op
from ipu_tf.lowering.rules.regions import combiner, on_scalars
from ipu_tf.lowering.rules.registry import Importer, rule

_NAMED: dict[str | None, Callable[..., jax.Array]] = {
    "stablehlo.add": lax.add,
    "stablehlo.maximum": lax.max,
    "stablehlo.minimum": lax.min,
}


@rule("stablehlo.reduce_window")
def _reduce_window(importer: Importer, op: Op, *values: jax.Array) -> list[jax.Array]:
    count = len(values) // 2
    operands, starts = values[:count], values[count:]
    size = op.integers("window_dimensions")
    ones = (1,) * len(size)
    window: dict[str, Any] = {
        "window_dimensions": size,
        "window_strides": op.integers("window_strides") or ones,
        "padding": op.pairs("padding") or tuple((0, 0) for _ in ones),
        "base_dilation": op.integers("base_dilations") or ones,
        "window_dilation": op.integers("window_dilations") or ones,
    }
    named = _NAMED.get(combiner(op.regions[0])) if count == 1 else None
    if named is not None:
        return [lax.reduce_window(operands[0], starts[0], named, **window)]
    region = on_scalars(importer, op.regions[0])
    return list(lax.reduce_window(operands, starts, lambda a, b: tuple(region(*a, *b)), **window))
