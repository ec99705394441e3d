"""Classifies StableHLO ops: floating-point arithmetic, as their rules registered it; comparison; data movement."""

from __future__ import annotations

from typing import Any

from ipu_tf.lowering.importer.rules.regions import combiner
from ipu_tf.lowering.importer.rules.registry import ARITHMETIC, ArithmeticKind
from ipu_tf.lowering.stablehlo.module import custom_call_target

CONVERT = "stablehlo.convert"
_PRODUCTS = ("stablehlo.dot", "stablehlo.dot_general", "stablehlo.convolution")
_SCALAR_REGIONS = {
    f"stablehlo.{name}": region
    for name, region in (("reduce", 0), ("reduce_window", 0), ("scatter", 0), ("select_and_scatter", 1), ("sort", 0))
} | {"stablehlo.map": 0}
_FLOATS = ("f16", "f32", "bf16", "f64")
_COMBINED = ("stablehlo.add", "stablehlo.multiply")
_NOT_COMMUTATIVE = ("stablehlo.subtract", "stablehlo.divide")
"""What scatters may do to an element, such as `tf.tensor_scatter_nd_sub`, and `combiner` does not name."""


def is_arithmetic(operation: Any) -> bool:
    """Returns whether an op is floating-point arithmetic, rather than data movement."""
    name = operation.name
    if name == "stablehlo.scatter":
        inner = operation.regions[0].blocks[0].operations
        return region_kind(operation) in _COMBINED or any(each.operation.name in _NOT_COMMUTATIVE for each in inner)
    if name in _SCALAR_REGIONS:
        return region_kind(operation) in _COMBINED
    return (custom_call_target(operation) if name == "stablehlo.custom_call" else name) in ARITHMETIC


def is_elementwise(name: str) -> bool:
    """Returns whether an op is arithmetic on one element of each operand for each element of its result."""
    return ARITHMETIC.get(name) is ArithmeticKind.ELEMENTWISE


def region_kind(operation: Any) -> str:
    """Returns the op that a reduction, scatter, sort or map applies, such as `stablehlo.add`; else "other".

    Empty for an operation without one, loops and branches among them.
    """
    index = _SCALAR_REGIONS.get(operation.name)
    return "" if index is None else combiner(operation.regions[index].blocks[0]) or "other"


def is_ordering(operation: Any) -> bool:
    """Returns whether an op is an ordered comparison, for which NaN is invalid."""
    if operation.name != "stablehlo.compare":
        return False
    return str(operation.attributes["comparison_direction"]).rstrip(">").split()[-1] in ("LT", "LE", "GT", "GE")


def only_moves_operands(name: str) -> bool:
    """Returns whether an op takes float16 operands for a float32 result without a conversion."""
    return name in _PRODUCTS


def returns_half(operation: Any) -> bool:
    """Returns whether an op computes float16 numbers, rather than moving them."""
    return is_arithmetic(operation) and any(_is_of(value, "f16") for value in operation.results)


def is_checked(operation: Any) -> bool:
    """Returns whether an op is checked for floating-point exceptions: arithmetic or ordered comparison."""
    if is_ordering(operation):
        return _is_of(operation.operands[0], *_FLOATS)
    if not is_arithmetic(operation) or (operation.name == CONVERT and _is_of(operation.results[0], "i1")):
        return False
    return any(_is_of(value, *_FLOATS) for value in (*operation.operands, *operation.results))


def _is_of(value: Any, *elements: str) -> bool:
    """Tests whether a value, or an element of a tuple, has one of some StableHLO element types."""
    text = str(value.type)
    return "complex" not in text and any(f"x{name}>" in text or f"<{name}>" in text for name in elements)
