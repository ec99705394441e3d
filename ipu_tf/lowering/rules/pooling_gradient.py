"""Gradients of pooling by selection: each window's gradient goes to the element that the window selected."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import lax

from ipu_tf.lowering.op import Op
from ipu_tf.lowering.rules.regions import combiner
from ipu_tf.lowering.rules.registry import Importer, rule

_SELECTIONS = {"GE": lax.ge_p, "LE": lax.le_p}


@rule("stablehlo.select_and_scatter")
def _select_and_scatter(
    importer: Importer, op: Op, operand: jax.Array, source: jax.Array, start: jax.Array
) -> jax.Array:
    select, scatter = op.regions
    if combiner(scatter) != "stablehlo.add":
        raise NotImplementedError("a select_and_scatter that does other than add what it scatters")
    ones = (1,) * operand.ndim
    scattered = lax.select_and_scatter_add_p.bind(
        source,
        operand,
        select_prim=_SELECTIONS[_selection(select)],
        window_dimensions=op.integers("window_dimensions") or ones,
        window_strides=op.integers("window_strides") or ones,
        padding=op.pairs("padding") or tuple((0, 0) for _ in ones),
    )
    if isinstance(start, np.ndarray) and not start.any():
        return scattered
    return lax.add(scattered, lax.broadcast(start, scattered.shape))


def _selection(block: Any) -> str:
    """`GE` for a region that prefers the greater element, the first of equal ones; `LE` for the smaller."""
    compare = Op(block.operations[0].operation)
    direction = compare.word("comparison_direction") if compare.name == "stablehlo.compare" else compare.name
    in_order = list(compare.operation.operands) == list(block.arguments)
    if len(block.operations) != 2 or not in_order or direction not in _SELECTIONS:
        raise NotImplementedError(f"a select_and_scatter that selects by {direction}")
    return direction
