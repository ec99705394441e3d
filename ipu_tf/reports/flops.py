"""Counts floating-point operations (FLOPs) of JAX operations: of an equation, a jaxpr, a function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.recorded import Recorded
from ipu_tf.reports.known_integers import KnownIntegers

# fmt: off
_MOVING = frozenset([
    "broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "slice", "dynamic_slice", "split",
    "dynamic_update_slice", "concatenate", "pad", "gather", "scatter", "iota", "copy", "copy_p", "stop_gradient", "rev",
    "select_n", "convert_element_type", "device_put", "optimization_barrier",
])
# fmt: on
_REDUCTIONS = frozenset(["reduce_sum", "reduce_max", "reduce_min", "reduce_prod"])


def flops_of(function: Callable[..., Any], *arguments: Any) -> float:
    """Returns the floating-point operations of a function, which is traced and not run.

    Products count two for each pair of numbers, what only moves data nothing, reductions one for each number that goes
    in without coming out, everything else one for each number that comes out. A loop counts as often as it runs, once
    where its condition is more than integers that grow by constants up to known ones; of branches the dearest counts.

    Args:
        function: traceable by JAX.
        arguments: what it is called with: arrays, or their shapes and dtypes.
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr, {})


def _of_jaxpr(jaxpr: Any, planned: Recorded) -> float:
    numbers = KnownIntegers()
    return sum(equation_flops(equation, planned, numbers.note(equation)) for equation in jaxpr.eqns)


def equation_flops(equation: Any, planned: Recorded, trips: int | None = None) -> float:
    """Returns the floating-point operations of a `jax.extend.core.JaxprEqn`, as `flops_of` counts them.

    Args:
        equation: the operation.
        planned: convolutions by their name scopes, which are counted as such whatever computes them.
        trips: how often it runs if it is a `while`; None where that is not known.
    """
    name = equation.primitive.name
    scope = str(equation.source_info.name_stack).rpartition("/")[2]
    if name == "custom_vmap_call" and scope in planned:
        return convolution_flops(planned[scope])
    if name in _MOVING:
        return 0.0
    if name in _PRODUCTS:
        return 2.0 * _PRODUCTS[name](equation)
    if name.startswith("scatter"):  # whose function of two numbers is applied to each update
        return float(_numbers(equation.invars[2:]))
    inner = [_of_jaxpr(jaxpr, planned) for jaxpr in _inner(equation.params)]
    if name == "cond":
        return max(inner, default=0.0)
    if name == "scan":
        return float(equation.params["length"]) * sum(inner)
    if name == "reduce":
        first, result = equation.invars[0].aval, equation.outvars[0].aval
        return max(sum(inner), 1.0) * (math.prod(first.shape) - math.prod(result.shape))
    if name == "reduce_window":
        return sum(inner) * math.prod(equation.outvars[0].aval.shape)
    if inner:
        return sum(inner) if trips is None else float(trips) * sum(inner)
    if name in _REDUCTIONS:
        return float(_numbers(equation.invars) - _numbers(equation.outvars))
    return float(_numbers(equation.outvars))


def _numbers(atoms: Sequence[Any]) -> int:
    """Counts the floating-point numbers of some values."""
    arrays = (atom.aval for atom in atoms if hasattr(atom.aval, "shape"))
    return sum(math.prod(aval.shape) for aval in arrays if jnp.issubdtype(aval.dtype, jnp.inexact))


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    """Returns the inner jaxprs of an equation, without derivative rules."""
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            jaxpr = getattr(each, "jaxpr", each)
            if hasattr(jaxpr, "eqns"):
                yield jaxpr


def _matrix_product(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)


def _convolution(equation: Any) -> int:
    """Counts multiply-adds of a convolution, without those on padding and between dilated elements."""
    params, (image, kernel) = equation.params, (variable.aval.shape for variable in equation.invars)
    numbers, result = params["dimension_numbers"], equation.outvars[0].aval.shape
    batch, features = (result[axis] for axis in numbers.out_spec[:2])
    pairs = [
        _pairs(image[image_axis], kernel[kernel_axis], result[result_axis], *window)
        for image_axis, kernel_axis, result_axis, *window in zip(
            numbers.lhs_spec[2:],
            numbers.rhs_spec[2:],
            numbers.out_spec[2:],
            params["window_strides"],
            params["padding"],
            params["lhs_dilation"],
            params["rhs_dilation"],
            strict=True,
        )
    ]
    return int(batch * features * kernel[numbers.rhs_spec[1]] * math.prod(pairs))


def convolution_flops(problem: CanonicalConvolution) -> float:
    """Returns the floating-point operations of a convolution, without those on padding and between dilated elements."""
    window = (problem.strides, problem.padding, problem.input_dilation, problem.window_dilation)
    pairs = [_pairs(*axis) for axis in zip(problem.input, problem.window, problem.output, *window, strict=True)]
    return 2.0 * problem.output_shape[0] * problem.out_features * problem.group_features * math.prod(pairs)


def _pairs(
    size: int, kernel: int, result: int, stride: int, padding: Sequence[int], dilation: int, kernel_dilation: int
) -> int:
    """Counts the pairs of input and kernel elements along one axis."""
    places = np.add.outer(np.arange(result) * stride, np.arange(kernel) * kernel_dilation) - padding[0]
    return int(np.sum((places % dilation == 0) & (places >= 0) & (places <= (size - 1) * dilation)))


_PRODUCTS: dict[str, Callable[[Any], int]] = {
    "dot_general": _matrix_product,
    "conv_general_dilated": _convolution,
}
