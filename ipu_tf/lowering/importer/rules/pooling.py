"""Rules for max and average pooling and their gradients: `reduce_window` and `select_and_scatter`."""

from __future__ import annotations

from typing import Any, get_args

import jax
from jax import lax

from ipu_tf.device.convolution import pooling
from ipu_tf.lowering.importer.rules.convolution import constant_of, convolution_bias_relu_of
from ipu_tf.lowering.importer.rules.products import has_one_use
from ipu_tf.lowering.importer.rules.regions import combiner, pairwise
from ipu_tf.lowering.importer.rules.registry import Importer, rule
from ipu_tf.lowering.stablehlo.op import Op

_REDUCERS: dict[str | None, pooling.Reducer] = {
    "stablehlo.add": "add",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
}


@rule("stablehlo.reduce_window")
def _reduce_window(importer: Importer, op: Op, *values: jax.Array) -> list[jax.Array]:
    count = len(values) // 2
    operands, starts = values[:count], values[count:]
    ones = (1,) * operands[0].ndim
    window: dict[str, Any] = {
        **_window(op, operands[0].ndim),
        "base_dilation": op.integers("base_dilations") or ones,
        "window_dilation": op.integers("window_dilations") or ones,
    }
    reducer = _REDUCERS.get(combiner(op.regions[0])) if count == 1 else None
    if reducer == "max":
        fused = _of_convolution(importer, op, window)
        if fused is not None:
            return [fused]
    if reducer is not None:
        return [pooling.reduce_window(operands[0], starts[0], reducer, **window)]
    return list(lax.reduce_window(operands, starts, pairwise(importer, op.regions[0], starts), **window))


def _of_convolution(importer: Importer, op: Op, window: dict[str, Any]) -> jax.Array | None:
    """Computes max pooling of a convolution with bias and ReLU, which nothing else uses; None if it is none.

    Windows lie beside each other and are inside of the result, and what they begin with is not above its least, 0.
    """
    operand, start = op.operation.operands
    pooled, sizes, least = has_one_use(operand), window["window_dimensions"], constant_of(start)
    if least is None or not least <= 0:
        return None
    apart = [each for name, sides in window.items() if name.endswith("dilation") for each in sides]
    if pooled is None or window["window_strides"] != sizes or any(map(any, window["padding"])) or {*apart} != {1}:
        return None
    return convolution_bias_relu_of(importer, Op(pooled), sizes)


@rule("stablehlo.select_and_scatter")
def _select_and_scatter(
    importer: Importer, op: Op, operand: jax.Array, source: jax.Array, start: jax.Array
) -> jax.Array:
    """Computes the gradient of max-pooling."""
    select, scatter = op.regions
    if combiner(scatter) != "stablehlo.add":
        raise NotImplementedError("a select_and_scatter that does other than add what it scatters")
    window = _window(op, operand.ndim)
    return pooling.select_and_scatter(operand, source, start, select=_selection(select), **window)


def _window(op: Op, rank: int) -> dict[str, Any]:
    return {
        "window_dimensions": op.integers("window_dimensions") or (1,) * rank,
        "window_strides": op.integers("window_strides") or (1,) * rank,
        "padding": op.pairs("padding") or ((0, 0),) * rank,
    }


def _selection(block: Any) -> pooling.Select:
    """Returns the comparison by which a region selects its first argument."""
    first = Op(block.operations[0].operation)
    is_compare = first.name == "stablehlo.compare" and len(block.operations) == 2
    if is_compare and list(first.operation.operands) == list(block.arguments):
        for select in get_args(pooling.Select):
            if select == first.word("comparison_direction"):
                return select
    raise NotImplementedError(f"a select_and_scatter that selects by anything but {pooling.Select}")
