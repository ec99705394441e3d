"""`convolution`: computes `stablehlo.convolution` by the cheapest plan; fast inside `while` loops on CPU.

XLA:CPU runs a convolution inside of a `while` loop 10 to 50 times slower than outside, unless it is written
in one particular form. The device's programs are loops, so every convolution is brought into a canonical
form, and the cheapest plan for its shape is chosen (`plans`).
On other backends the backend's own convolution is used unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from ipu_tf.device.convolution import native_plan
from ipu_tf.device.convolution.canonical import canonicalize
from ipu_tf.device.convolution.plans import callable_now, choose, explain, solve
from ipu_tf.device.convolution.problem import CanonicalConvolution, ConvLayout
from ipu_tf.device.convolution.recorded import recorded
from ipu_tf.device.convolution.xla_plans import library_convolution

__all__ = ["CanonicalConvolution", "ConvLayout", "canonicalize", "convolution", "explain"]


def convolution(
    lhs: jax.Array,
    rhs: jax.Array,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    window_reversal: Sequence[bool],
    dimension_numbers: ConvLayout,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: lax.PrecisionLike = None,
    preferred_element_type: object = None,
    platform: str | None = None,
) -> jax.Array:
    """Computes `stablehlo.convolution` of any rank, element type, stride, padding, dilation, reversal and grouping.

    Args:
        lhs: the input.
        rhs: the kernel, of the input's element type.
        window_strides: steps of the window, one for each spatial axis.
        padding: zeros before and after each spatial axis; negative ones crop.
        lhs_dilation: distances of the input's elements, 1 for none between them.
        rhs_dilation: distances of the window's elements.
        window_reversal: for each spatial axis, whether the kernel is reversed along it.
        dimension_numbers: which axis of input, kernel and result is which.
        feature_group_count: groups of features convolved separately.
        batch_group_count: groups of batch rows convolved separately.
        precision: as in `jax.lax`.
        preferred_element_type: the result's element type; by default the operands'.
        platform: where it will run, such as "cpu" or "gpu"; by default JAX's default backend.

    Returns:
        The result, its axes as `dimension_numbers` says.

    Raises:
        ValueError: shapes, types, layout and window do not belong together.

    Example:
        >>> import jax.numpy as jnp
        >>> convolution(jnp.ones((1, 4, 1)), jnp.ones((2, 1, 1)), window_strides=(1,), padding=((0, 0),),
        ...     lhs_dilation=(1,), rhs_dilation=(1,), window_reversal=(False,),
        ...     dimension_numbers=ConvLayout.canonical(1)).ravel()
        Array([2., 2., 2.], dtype=float32)
    """
    layout = dimension_numbers
    _check_element_types(lhs, rhs)
    problem = canonicalize(
        lhs.shape,
        rhs.shape,
        lhs.dtype,
        window_strides=window_strides,
        padding=padding,
        lhs_dilation=lhs_dilation,
        rhs_dilation=rhs_dilation,
        dimension_numbers=layout,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )
    if (platform or jax.default_backend()) != "cpu":
        return library_convolution(lhs, _reversed(rhs, layout, window_reversal), problem, layout)
    return _planned(lhs, rhs, problem, layout, window_reversal).transpose(np.argsort(layout.output))


def _planned(
    lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, layout: ConvLayout, window_reversal: Sequence[bool]
) -> jax.Array:
    """Computes a convolution by the cheapest plan: `problem.output_shape`."""
    plan = choose(problem, callable_now())
    with recorded(problem, plan.name):
        if plan.emit_turned is not None and _is_turned(problem, layout, window_reversal):
            return _solved(plan.emit_turned, problem)(lhs.transpose(layout.input), rhs)
        kernel = _reversed(rhs, layout, window_reversal).transpose(layout.kernel)
        return _solved(solve, problem)(lhs.transpose(layout.input), kernel)


def _reversed(rhs: jax.Array, layout: ConvLayout, window_reversal: Sequence[bool]) -> jax.Array:
    axes = [axis for axis, flag in zip(layout.kernel_spatial, window_reversal, strict=True) if flag]
    return lax.rev(rhs, axes) if axes else rhs


def _is_turned(problem: CanonicalConvolution, layout: ConvLayout, window_reversal: Sequence[bool]) -> bool:
    """Returns whether a kernel is that of the layer whose gradient a convolution is."""
    *spatial, given, made = layout.kernel
    in_order = [*spatial, made, given] == list(range(len(layout.kernel)))
    return in_order and all(flag or size == 1 for flag, size in zip(window_reversal, problem.window, strict=True))


def _check_element_types(lhs: jax.Array, rhs: jax.Array) -> None:
    if lhs.dtype != rhs.dtype:
        raise ValueError(
            f"the operands of a convolution must have one element type; received {lhs.dtype} and "
            f"{rhs.dtype}. Convert one of them."
        )


def convolution_bias_relu(
    lhs: jax.Array,
    rhs: jax.Array,
    bias: jax.Array,
    *,
    window_reversal: Sequence[bool],
    dimension_numbers: ConvLayout,
    pool: Sequence[int] | None = None,
    **window: Any,
) -> jax.Array | None:
    """Computes `max(convolution + bias, 0)`, and pools it, in one pass; None unless the native kernel does.

    Args:
        lhs, rhs, window_reversal, dimension_numbers: as for `convolution`.
        bias: one for each feature of the result, of the operands' element type.
        pool: for each axis of the result, the size of the windows that lie beside each other and of which the largest
            elements are wanted; by default there are no windows.
        window: the other arguments of `convolution`, but `platform`.
    """
    layout = dimension_numbers
    if any(window_reversal) or jax.default_backend() != "cpu":
        return None
    problem = canonicalize(lhs.shape, rhs.shape, lhs.dtype, dimension_numbers=layout, **window)
    if choose(problem, callable_now()) is not native_plan.NATIVE_DENSE:
        return None
    spatial, added = None, "bias and relu"
    if pool is not None:
        batch, *sizes, feature = (pool[axis] for axis in layout.output)
        spatial, added = tuple(sizes), "bias, relu and max pooling"
        if (batch, feature) != (1, 1) or not native_plan.can_pool(problem, spatial):
            return None
    operands = (lhs.transpose(layout.input), rhs.transpose(layout.kernel), bias)
    with recorded(problem, f"{native_plan.NATIVE_DENSE.name} with {added}"):
        result = _solved(native_plan.convolution_bias_relu, problem, spatial)(*operands)
    return result.transpose(np.argsort(layout.output))


@functools.lru_cache(maxsize=4096)
def _solved(
    compute: Callable[..., jax.Array], problem: CanonicalConvolution, *others: Hashable
) -> Callable[..., jax.Array]:
    """Applies `compute` to one problem. Replicas that share a device compute it one after the other, by the best plan:
    JAX would make one grouped convolution of them, which the CPU is many times slower at."""

    @jax.custom_batching.custom_vmap
    def solved(*operands: jax.Array) -> jax.Array:
        return compute(*operands, problem, *others)

    @solved.def_vmap
    def _(size: int, batched: Sequence[bool], *operands: jax.Array) -> tuple[jax.Array, bool]:
        pairs = zip(operands, batched, strict=True)
        every = tuple(x if has else jax.numpy.broadcast_to(x, (size, *x.shape)) for x, has in pairs)
        return lax.map(lambda one: compute(*one, problem, *others), every), True

    return solved
