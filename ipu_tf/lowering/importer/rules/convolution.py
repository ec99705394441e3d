"""Rules for convolutions."""

from __future__ import annotations

import jax

from ipu_tf.device.convolution.convolve import ConvLayout, convolution
from ipu_tf.lowering.importer.rules.attributes import precision
from ipu_tf.lowering.importer.rules.registry import Importer, rule
from ipu_tf.lowering.jax.jax_private import stablehlo
from ipu_tf.lowering.stablehlo.op import Op


@rule("stablehlo.convolution")
def _convolution(importer: Importer, op: Op, left: jax.Array, right: jax.Array) -> jax.Array:
    layout = _layout(op)
    ones, none = (1,) * len(layout.input_spatial), (False,) * len(layout.input_spatial)
    return convolution(
        left,
        right,
        window_strides=op.integers("window_strides") or ones,
        padding=op.pairs("padding") or tuple((0, 0) for _ in ones),
        lhs_dilation=op.integers("lhs_dilation") or ones,
        rhs_dilation=op.integers("rhs_dilation") or ones,
        window_reversal=op.booleans("window_reversal") or none,
        dimension_numbers=layout,
        feature_group_count=op.integer("feature_group_count", 1),
        batch_group_count=op.integer("batch_group_count", 1),
        precision=precision(op),
        preferred_element_type=op.result.dtype,
    )


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
