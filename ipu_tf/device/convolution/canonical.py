"""Converts StableHLO convolution attributes to a `CanonicalConvolution`, with shape checks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ipu_tf.device.convolution.problem import CanonicalConvolution, ConvLayout


def canonicalize(
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    dtype: object,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: ConvLayout,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Hashable = None,
    preferred_element_type: object = None,
) -> CanonicalConvolution:
    """Converts StableHLO convolution attributes to a canonical problem. Window reversal is left to the caller.

    Args:
        lhs_shape, rhs_shape: shapes of input and kernel, in the layout of `dimension_numbers`.
        dtype: the operands' element type.
        window_strides, padding, lhs_dilation, rhs_dilation: one for each spatial axis.
        dimension_numbers: which axis is which.
        feature_group_count, batch_group_count: as in StableHLO; at most one of them above 1.
        precision: JAX's precision.
        preferred_element_type: the result's element type; by default the operands'.

    Raises:
        ValueError: the shapes, the layout and the window do not belong together.

    Example:
        >>> problem = canonicalize((8, 5, 5, 3), (3, 3, 3, 4), "float32", window_strides=(1, 1),
        ...     padding=((1, 1), (1, 1)), lhs_dilation=(1, 1), rhs_dilation=(1, 1),
        ...     dimension_numbers=ConvLayout.canonical(2))
        >>> problem.output_shape
        (8, 5, 5, 4)
    """
    layout = dimension_numbers
    _check_layout(layout, len(lhs_shape), len(rhs_shape))
    window = {"strides": window_strides, "input_dilation": lhs_dilation, "window_dilation": rhs_dilation}
    _check_window({**window, "padding": padding}, len(lhs_shape) - 2)
    _check_groups(layout, lhs_shape, rhs_shape, feature_group_count, batch_group_count)
    return CanonicalConvolution(
        batch=lhs_shape[layout.input_batch],
        in_features=lhs_shape[layout.input_feature],
        out_features=rhs_shape[layout.kernel_output_feature],
        input=tuple(lhs_shape[axis] for axis in layout.input_spatial),
        window=tuple(rhs_shape[axis] for axis in layout.kernel_spatial),
        padding=tuple((int(low), int(high)) for low, high in padding),
        **{name: tuple(map(int, values)) for name, values in window.items()},
        feature_groups=feature_group_count,
        batch_groups=batch_group_count,
        dtype=np.dtype(dtype).name,  # type: ignore[call-overload]
        out_dtype=np.dtype(dtype if preferred_element_type is None else preferred_element_type).name,  # type: ignore[call-overload]
        precision=precision,
        leading_contraction=layout.input_feature < layout.input_batch,
    )


def _check_layout(layout: ConvLayout, lhs_rank: int, rhs_rank: int) -> None:
    ranks = {"input": lhs_rank, "kernel": rhs_rank, "output": lhs_rank}
    for name, rank in ranks.items():
        axes = getattr(layout, name)
        if sorted(axes) != list(range(rank)):
            raise ValueError(
                f"the {name} axes of a convolution must be each of 0 to {rank - 1} once, for an array of "
                f"{rank} axes; received {axes}. Give every axis of the {name} one role in the layout."
            )


def _check_window(window: dict[str, Sequence[object]], rank: int) -> None:
    for name, values in window.items():
        if len(values) != rank:
            raise ValueError(
                f"a convolution over {rank} spatial axes needs {rank} {name}; received {tuple(values)}. "
                "Give one for each spatial axis."
            )
        if name != "padding" and any(value < 1 for value in values):  # type: ignore[operator]
            raise ValueError(f"{name} of a convolution must be 1 or more; received {tuple(values)}. Use 1 for none.")


def _check_groups(
    layout: ConvLayout,
    lhs_shape: Sequence[int],
    rhs_shape: Sequence[int],
    feature_groups: int,
    batch_groups: int,
) -> None:
    features, batch = lhs_shape[layout.input_feature], lhs_shape[layout.input_batch]
    kernel, out = rhs_shape[layout.kernel_input_feature], rhs_shape[layout.kernel_output_feature]
    received = f"received input {tuple(lhs_shape)}, kernel {tuple(rhs_shape)}"
    if min(feature_groups, batch_groups) != 1:
        raise ValueError(
            "one of feature_group_count and batch_group_count must be 1 and the other 1 or more; received "
            f"{feature_groups} and {batch_groups}. Split the convolution by one of them."
        )
    if kernel * feature_groups != features:
        raise ValueError(
            f"the kernel must have {features} / {feature_groups} input features, those of one feature group; "
            f"{received}. Change the kernel or feature_group_count."
        )
    for name, size, groups in (
        ("output features", out, feature_groups),
        ("output features", out, batch_groups),
        ("batch", batch, batch_groups),
    ):
        if size % groups:
            raise ValueError(f"the {name} must divide into {groups} groups; {received}. Change the number of groups.")
