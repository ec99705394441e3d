"""Max, min and average pooling and their gradients: `reduce_window` and `select_and_scatter`, axis by axis.

    max pooling        reduce_window by max            its gradient   select_and_scatter
    average pooling    reduce_window by add, divided   its gradient   padded between elements, then reduce_window by add

XLA:CPU scatters the gradients of max pooling one element at a time. Here a window's selected element is found
along the last axis first, then among those found along the axis before it, and so on, and gradients go the
same way back. A window of k x k elements so costs k + k passes over whole arrays, which are vectorised and cost
the same inside of loops, whether windows overlap or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from ipu_tf.device.convolution.pooling_axis import AxisWindows

#: Windows longer than this along one axis are left to XLA; the program would be long.
LONGEST = 32

Select = Literal["GE", "GT", "LE", "LT"]
_COMPARE: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "GE": lax.ge,
    "GT": lax.gt,
    "LE": lax.le,
    "LT": lax.lt,
}
_COMPARE_PRIMITIVES = {
    "GE": primitives.ge_p,
    "GT": primitives.gt_p,
    "LE": primitives.le_p,
    "LT": primitives.lt_p,
}
Reducer = Literal["max", "min", "add"]
_REDUCE: dict[str, Callable[..., jax.Array]] = {"max": lax.max, "min": lax.min, "add": lax.add}
Pairs = Sequence[tuple[int, int]]


def select_and_scatter(
    operand: jax.Array,
    source: jax.Array,
    init: jax.Array,
    *,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Pairs,
    select: Select = "GE",
) -> jax.Array:
    """Computes `stablehlo.select_and_scatter` with an addition as scatter: the gradient of max pooling.

    In each window of `operand` one element is selected, and the window's element of `source` is added to
    the result there. Of elements that compare equal, "GE" and "LE" select the first in row-major order,
    "GT" and "LT" the last. Which element of a window with NaNs is selected is not specified. Padding is
    never selected. Windows of which more than `LONGEST` overlap, and those of many times that, are left to XLA.

    Args:
        operand: the array the windows slide over.
        source: an element for each window, of the operand's type.
        init: a scalar, what every element of the result starts from.
        window_dimensions, window_strides, padding: one for each axis.
        select: the comparison by which an element is kept against a later one.

    Returns:
        An array of the operand's shape.

    Raises:
        ValueError: the source's shape is not that of the windows.

    Example:
        >>> x, ones = jnp.array([3.0, 3.0, 1.0, 2.0]), jnp.ones(2)
        >>> select_and_scatter(x, ones, jnp.float32(0), window_dimensions=(2,), window_strides=(2,),
        ...     padding=((0, 0),))
        Array([1., 0., 0., 1.], dtype=float32)
    """
    windows = _windows(operand.shape, window_dimensions, window_strides, padding)
    counts = tuple(window.count for window in windows)
    if source.shape != counts:
        raise ValueError(
            f"the source must have an element for each window, {counts}; received {source.shape}. Give it the "
            "shape of the pooled array."
        )
    if 0 in counts:
        return jnp.broadcast_to(init, operand.shape).astype(operand.dtype)
    is_long = any(_is_long(*each) for each in zip(window_dimensions, window_strides, strict=True))
    if is_long and (select != "GT" or not any(map(any, padding))):  # for which JAX pads with what would be selected
        return _by_xla(operand, source, window_dimensions, window_strides, padding, select) + init.astype(source.dtype)
    axes = [axis for axis, window in enumerate(windows) if not window.is_trivial]
    found: list[jax.Array] = []
    best = operand
    for axis in reversed(axes):
        best, place = lax.optimization_barrier(windows[axis].select(best, axis, _COMPARE[select]))
        found.append(place)
    for axis in axes:
        source = lax.optimization_barrier(windows[axis].scatter(source, found.pop(), axis))
    return source + init.astype(source.dtype)


def _by_xla(
    operand: jax.Array, source: jax.Array, sizes: Sequence[int], strides: Sequence[int], padding: Pairs, select: Select
) -> jax.Array:
    """Has XLA select and scatter, element by element."""
    result: jax.Array = primitives.select_and_scatter_add_p.bind(
        source,
        operand,
        select_prim=_COMPARE_PRIMITIVES[select],
        window_dimensions=tuple(sizes),
        window_strides=tuple(strides),
        padding=tuple(map(tuple, padding)),
    )
    return result


def _is_long(size: int, stride: int) -> bool:
    """Returns whether the gradient of pooling along an axis would be a long program: a pass for each overlap."""
    return -(-size // stride) > LONGEST or size > 8 * LONGEST


def reduce_window(
    operand: jax.Array,
    init: jax.Array,
    reducer: Reducer,
    *,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Pairs,
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> jax.Array:
    """Computes `stablehlo.reduce_window` by max or min, as max pooling does, or by add, as average pooling does.

    Sums are not divided by the size of the window: TensorFlow divides them by an op of its own. The gradient of average
    pooling is a sum over windows, too.

    Sums of float16 and bfloat16 are kept in float32. Windows over a dilated operand, dilated windows and
    windows longer than `LONGEST` are reduced by XLA.

    Args:
        operand: the array the windows slide over.
        init: a scalar, what each reduction starts from. Padding is not reduced.
        reducer: "max", "min" or "add".
        window_dimensions, window_strides, padding: one for each axis.
        base_dilation, window_dilation: one for each axis; by default 1.

    Returns:
        An array with an element for each window.

    Example:
        >>> reduce_window(jnp.arange(4.0), jnp.float32(0), "add", window_dimensions=(2,),
        ...     window_strides=(1,), padding=((0, 0),))
        Array([1., 3., 5.], dtype=float32)
    """
    dilated = {1} != {1, *(base_dilation or ()), *(window_dilation or ())}
    windows = _windows(operand.shape, window_dimensions, window_strides, padding)
    long = max(window_dimensions, default=1) > LONGEST
    if dilated or long or _identity(reducer, operand.dtype) is None or 0 in (w.count for w in windows):
        return lax.reduce_window(
            operand,
            init,
            _REDUCE[reducer],
            window_dimensions,
            window_strides,
            tuple(padding),
            base_dilation,
            window_dilation,
        )
    return _reduce_by_axis(operand, init, reducer, windows)


def _reduce_by_axis(operand: jax.Array, init: jax.Array, reducer: Reducer, windows: Sequence[AxisWindows]) -> jax.Array:
    combine, identity = _REDUCE[reducer], np.array(_identity(reducer, operand.dtype), operand.dtype)
    kept = np.float32 if reducer == "add" and operand.dtype in (jnp.float16, jnp.bfloat16) else operand.dtype
    total = lax.pad(operand, identity, [(w.low, w.high, 0) for w in windows]).astype(kept)
    for axis in reversed(range(operand.ndim)):
        if not windows[axis].is_trivial:
            total = lax.optimization_barrier(windows[axis].reduce(total, axis, combine))
    return combine(total, jnp.broadcast_to(init.astype(kept), total.shape)).astype(operand.dtype)


def _identity(reducer: Reducer, dtype: np.dtype) -> float | int | None:
    """Returns the identity element of a reducer; None for types that are left to XLA."""
    if jnp.issubdtype(dtype, jnp.floating):
        return {"max": -math.inf, "min": math.inf, "add": 0.0}[reducer]
    if jnp.issubdtype(dtype, jnp.integer):
        limits = jnp.iinfo(dtype)
        return {"max": limits.min, "min": limits.max, "add": 0}[reducer]
    return None


def _windows(shape: Sequence[int], sizes: Sequence[int], strides: Sequence[int], padding: Pairs) -> list[AxisWindows]:
    """Returns the windows along each axis."""
    entries = zip(shape, sizes, strides, padding, strict=True)
    return [AxisWindows(n, size, stride, *edges) for n, size, stride, edges in entries]
