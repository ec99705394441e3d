"""Rules for convolutions, and for ops that a convolution can compute as well: the maximum after it, and padding.

`max(convolution + bias, 0)` is one call of the native kernel. A layer's gradient needs the result alone: where it is
above 0. So the sum before the maximum is not kept. Nor is the result, if all that reads it is max pooling.

A layer that pads with zeros, such as `keras.layers.ZeroPadding2D`, is no pass over the image of its own: a convolution
of its result pads more, and a slice, its gradient, of a convolution makes that pad less.

    convolution(pad(x, p), padding=q)  ->  convolution(x, padding=p + q)
    slice(convolution(x, padding=q))   ->  convolution(x, padding=q - what is cut off)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from ipu_tf.device.convolution.convolve import ConvLayout, convolution, convolution_bias_relu
from ipu_tf.device.convolution.problem import Pairs
from ipu_tf.lowering.importer.rules.attributes import precision
from ipu_tf.lowering.importer.rules.constants import constant_array
from ipu_tf.lowering.importer.rules.products import has_one_use
from ipu_tf.lowering.importer.rules.registry import ArithmeticKind, Importer, rule
from ipu_tf.lowering.importer.rules.shapes import sliced
from ipu_tf.lowering.jax.jax_private import stablehlo
from ipu_tf.lowering.stablehlo.op import Op, array_type


@rule("stablehlo.convolution", arithmetic=ArithmeticKind.WHOLE)
def _convolution(importer: Importer, op: Op, left: jax.Array, right: jax.Array) -> jax.Array:
    image, window = _unpadded(importer, op, left)
    kernel, window = _before_reversal(importer, op, right, window)
    return convolution(image, kernel, **window)


def _before_reversal(
    importer: Importer, op: Op, kernel: jax.Array, window: dict[str, Any]
) -> tuple[jax.Array, dict[str, Any]]:
    """Returns a convolution's kernel before its window was reversed, if it was, and the arguments that reverse it.

    The gradient of a layer's input is a convolution with its kernel reversed. Native kernels read it as it is.
    """
    source, spatial = op.operation.operands[1].owner, window["dimension_numbers"].kernel_spatial
    if getattr(source, "name", "") != "stablehlo.reverse" or {*Op(source).integers("dimensions")} != {*spatial}:
        return kernel, window
    if not importer.has(source.operands):  # a stage has the values only that its own ops use
        return kernel, window
    reversal = tuple(not flag for flag in window["window_reversal"])
    return importer.read(source.operands)[0], {**window, "window_reversal": reversal}


def _unpadded(importer: Importer, op: Op, image: jax.Array) -> tuple[jax.Array, dict[str, Any]]:
    """Returns a convolution's image before it was padded with zeros, if it was, and the window that pads it as well."""
    source, layout, window = op.operation.operands[0].owner, _layout(op), _window(op)
    if getattr(source, "name", "") != "stablehlo.pad" or set(window["lhs_dilation"]) - {1}:
        return image, window
    pad, (before, value) = Op(source), source.operands
    low, high = pad.integers("edge_padding_low"), pad.integers("edge_padding_high")
    others = [low[axis] or high[axis] for axis in (layout.input_batch, layout.input_feature)]
    if any(others) or any(pad.integers("interior_padding")) or min(low + high) < 0 or not _is_zero(value):
        return image, window
    if not importer.has([before]):  # a stage has the values only that its own ops use
        return image, window
    sizes = ((low[axis], high[axis]) for axis in layout.input_spatial)
    padding = tuple((a + c, b + d) for (a, b), (c, d) in zip(window["padding"], sizes, strict=True))
    return importer.read([before])[0], {**window, "padding": padding}


@rule("stablehlo.slice")
def _slice(importer: Importer, op: Op, operand: jax.Array) -> jax.Array:
    convolved = has_one_use(op.operation.operands[0]) if len(operand.shape) > 2 else None
    if convolved is not None and convolved.name == "stablehlo.convolution" and importer.arithmetic is None:
        padding = _padding_of_slice(op, Op(convolved))
        if padding is not None and importer.has(convolved.operands):
            return convolution(*importer.read(convolved.operands), **{**_window(Op(convolved)), "padding": padding})
    return sliced(operand, op.integers("start_indices"), op.integers("limit_indices"), op.integers("strides"))


def _padding_of_slice(op: Op, convolved: Op) -> Pairs | None:
    """Returns the padding with which a convolution computes a slice of its result; None if no padding does."""
    window, layout = _window(convolved), _layout(convolved)
    start, limit, shape = op.integers("start_indices"), op.integers("limit_indices"), convolved.result.shape
    cut = [(first, size - last) for first, last, size in zip(start, limit, shape, strict=True)]
    if {*op.integers("strides"), *window["window_strides"]} != {1}:
        return None
    if any(cut[layout.output_batch]) or any(cut[layout.output_feature]):
        return None
    outer = (cut[axis] for axis in layout.output_spatial)
    padding = tuple((a - c, b - d) for (a, b), (c, d) in zip(window["padding"], outer, strict=True))
    return padding if min(map(min, padding)) >= 0 else None


@rule("stablehlo.maximum")
def _maximum(importer: Importer, op: Op, left: jax.Array, right: jax.Array) -> jax.Array:
    fused = convolution_bias_relu_of(importer, op)
    return lax.max(left, right) if fused is None else fused


def convolution_bias_relu_of(importer: Importer, op: Op, pool: Sequence[int] | None = None) -> jax.Array | None:
    """Computes a maximum of 0 and a convolution with bias, whose sum has no other use; pooled; None if it is none.

    The convolution and the sum have been traced already. Nothing uses them then, and XLA drops them.
    """
    if op.name != "stablehlo.maximum" or op.result.dtype != np.float32 or len(op.result.shape) < 3:
        return None
    total, zero = op.operation.operands
    added = has_one_use(total)
    if added is None or added.name != "stablehlo.add" or importer.arithmetic is not None or not _is_zero(zero):
        return None
    convolved, bias = has_one_use(added.operands[0]), _bias(added.operands[1])
    if convolved is None or convolved.name != "stablehlo.convolution" or bias is None:
        return None
    if _layout(Op(convolved)).output_feature != len(op.result.shape) - 1:
        return None
    given = (*convolved.operands, bias)
    if not importer.has(given):  # a stage has the values only that its own ops use
        return None
    image, kernel, added_bias = importer.read(given)
    image, window = _unpadded(importer, Op(convolved), image)
    return convolution_bias_relu(image, kernel, added_bias, pool=pool, **window)


def _is_zero(value: Any) -> bool:
    constant = constant_of(value)
    return constant is not None and not (constant != 0).any()


def constant_of(value: Any) -> np.ndarray | None:
    """Returns the constant that a value is, behind broadcasts; None if it is computed."""
    source = value.owner
    while getattr(source, "name", "") == "stablehlo.broadcast_in_dim":
        source = source.operands[0].owner
    is_constant = getattr(source, "name", "") == "stablehlo.constant"
    return constant_array(Op(source)) if is_constant else None


def _bias(value: Any) -> Any:
    """Returns the vector that is broadcast along the last axis; None if it is none."""
    source = value.owner
    if getattr(source, "name", "") != "stablehlo.broadcast_in_dim":
        return None
    shape = array_type(str(value.type)).shape
    fits = array_type(str(source.operands[0].type)).shape == shape[-1:]
    return source.operands[0] if fits and Op(source).integers("broadcast_dimensions") == (len(shape) - 1,) else None


def _window(op: Op) -> dict[str, Any]:
    """Returns the arguments of `convolution` beside its operands."""
    layout = _layout(op)
    ones, none = (1,) * len(layout.input_spatial), (False,) * len(layout.input_spatial)
    return {
        "window_strides": op.integers("window_strides") or ones,
        "padding": op.pairs("padding") or tuple((0, 0) for _ in ones),
        "lhs_dilation": op.integers("lhs_dilation") or ones,
        "rhs_dilation": op.integers("rhs_dilation") or ones,
        "window_reversal": op.booleans("window_reversal") or none,
        "dimension_numbers": layout,
        "feature_group_count": op.integer("feature_group_count", 1),
        "batch_group_count": op.integer("batch_group_count", 1),
        "precision": precision(op),
        "preferred_element_type": op.result.dtype,
    }


def _layout(op: Op) -> ConvLayout:
    numbers = stablehlo.ConvDimensionNumbers(op.attribute("dimension_numbers"))
    return ConvLayout(
        input_batch=numbers.input_batch_dimension,
        input_feature=numbers.input_feature_dimension,
        input_spatial=tuple(numbers.input_spatial_dimensions),
        kernel_input_feature=numbers.kernel_input_feature_dimension,
        kernel_output_feature=numbers.kernel_output_feature_dimension,
        kernel_spatial=tuple(numbers.kernel_spatial_dimensions),
        output_batch=numbers.output_batch_dimension,
        output_feature=numbers.output_feature_dimension,
        output_spatial=tuple(numbers.output_spatial_dimensions),
    )
