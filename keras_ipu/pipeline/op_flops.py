"""Estimates floating-point operations (FLOPs) of a layer call's TensorFlow ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

# fmt: off
_MOVING = frozenset([
    "Const", "Placeholder", "ReadVariableOp", "Identity", "NoOp", "Reshape", "Squeeze", "ExpandDims",
    "StridedSlice", "Slice", "Transpose", "ConcatV2", "Pack", "Unpack", "Split", "SplitV", "Cast", "Pad",
    "PadV2", "GatherV2", "ResourceGather", "Shape", "Fill", "Range", "StopGradient", "BroadcastTo", "Tile",
    "SpaceToBatchND", "BatchToSpaceND", "AssignVariableOp", "Assert",
])
# fmt: on
LOOPS = frozenset(["While", "StatelessWhile"])
"""Types of ops that run others over and over."""
_CALLS = LOOPS | {"PartitionedCall", "StatefulPartitionedCall", "If", "StatelessIf"}


def op_flops(op: Any) -> float | None:
    """Returns the floating-point operations of an op; 0 for one that only moves data.

    Products count two for each pair of numbers, everything else one for each number that comes out. Sizes that the
    graph does not know count as 1.

    Args:
        op: a `tf.Operation`.

    Returns:
        The number; None for a loop, branch or call, whose ops are elsewhere.
    """
    if op.type in _CALLS:
        return None
    if op.type in _MOVING or not op.outputs:
        return 0.0
    rule = _PRODUCTS.get(op.type)
    if rule is not None:
        return 2.0 * rule(op)
    return float(sum(elements(tensor.shape) for tensor in op.outputs if tensor.dtype.is_floating))


def elements(shape: Any) -> int:
    """Returns the number of elements of a shape; unknown sizes count as 1."""
    dimensions = getattr(shape, "dims", shape)
    return math.prod(int(size) if size is not None else 1 for size in _sizes(dimensions))


def _sizes(dimensions: Any) -> list[Any]:
    return [getattr(size, "value", size) for size in dimensions or ()]


def _matrix_product(op: Any) -> int:
    attribute = "transpose_a" if op.type == "MatMul" else "adj_x"
    left = op.inputs[0].shape
    return elements(op.outputs[0].shape) * elements(left[-2:-1] if op.get_attr(attribute) else left[-1:])


def _convolution(op: Any) -> int:
    # The kernel's last dimension is that of the channels that come out.
    return elements(op.outputs[0].shape) * elements(op.inputs[1].shape[:-1])


def _depthwise(op: Any) -> int:
    return elements(op.outputs[0].shape) * elements(op.inputs[1].shape[:-2])


def _transposed(op: Any) -> int:
    return elements(op.inputs[2].shape) * elements(op.inputs[1].shape[:-1])


def _einsum(op: Any) -> int:
    """Counts an einsum's operations: each output element is a sum over the contracted labels."""
    terms, result = op.get_attr("equation").decode().replace("...", "").split("->")
    sizes: dict[str, int] = {}
    for labels, tensor in zip(terms.split(","), op.inputs, strict=True):
        # Labels are counted from the right: what an ellipsis stands for comes first.
        for label, size in zip(reversed(labels), reversed(tensor.shape.as_list()), strict=False):
            sizes[label] = size or 1
    return elements(op.outputs[0].shape) * math.prod(size for label, size in sizes.items() if label not in result)


_PRODUCTS: dict[str, Callable[[Any], int]] = {
    "MatMul": _matrix_product,
    "BatchMatMul": _matrix_product,
    "BatchMatMulV2": _matrix_product,
    "BatchMatMulV3": _matrix_product,
    "Conv2D": _convolution,
    "Conv3D": _convolution,
    "DepthwiseConv2dNative": _depthwise,
    "Conv2DBackpropInput": _transposed,
    "Conv3DBackpropInputV2": _transposed,
    "Einsum": _einsum,
}
