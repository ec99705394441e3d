"""Evaluates a jaxpr with convolutions and pooling by the device's convolution plans.

XLA:CPU is many times slower at them inside of a loop; see `ipu_tf.device.convolution.convolve`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jax.extend.core import primitives

from ipu_tf.device.convolution.convolve import ConvLayout, convolution
from ipu_tf.device.convolution.pooling import Reducer, reduce_window, select_and_scatter
from ipu_tf.device.convolution.summation import as_product, reduce_sum
from ipu_tf.device.op_scopes import scope_named
from ipu_tf.lowering.jax.transposed_products import without_transpositions

Rule = Callable[..., jax.Array]

#: Calls that are taken apart if there is something to plan in them, and where they keep what they call.
_CALLS = {
    primitives.jit_p: "jaxpr",
    primitives.closed_call_p: "call_jaxpr",
    primitives.custom_jvp_call_p: "call_jaxpr",
    primitives.custom_vjp_call_p: "call_jaxpr",
}


def planned(function: core.ClosedJaxpr) -> Callable[..., list[Any]]:
    """Returns the traced function, on flat arrays, with convolutions and pooling by the device's plans.

    Loops and branches inside of the function are evaluated by JAX, with products of vectors rewritten.
    """
    function = without_transpositions(function)
    if not _plannable(function):
        return core.jaxpr_as_fun(function)
    return lambda *arguments: _evaluate(function, arguments)


def _plannable(function: core.ClosedJaxpr) -> bool:
    return any(_has_plan(eqn) or _called(eqn) is not None for eqn in function.jaxpr.eqns)


def _has_plan(eqn: Any) -> bool:
    if eqn.primitive is primitives.reduce_sum_p:
        operand = eqn.invars[0].aval
        return as_product(operand.shape, operand.dtype, eqn.params["axes"])
    return eqn.primitive in _RULES


def _called(eqn: Any) -> core.ClosedJaxpr | None:
    """Returns the jaxpr that a call calls, if it has convolutions or pooling."""
    called = eqn.params.get(_CALLS.get(eqn.primitive))
    return called if called is not None and _plannable(called) else None


def _evaluate(function: core.ClosedJaxpr, arguments: Any) -> list[Any]:
    graph = function.jaxpr
    values: dict[Any, Any] = dict(zip((*graph.constvars, *graph.invars), (*function.consts, *arguments), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    reversals = {eqn.outvars[0]: eqn for eqn in graph.eqns if eqn.primitive is primitives.rev_p}
    for eqn in graph.eqns:
        source = _reversal_of_kernel(eqn, reversals)
        with scope_named(str(eqn.source_info.name_stack)):
            if source is None:
                results = _run(eqn, [read(atom) for atom in eqn.invars])
            else:
                image, kernel = map(jnp.asarray, (read(eqn.invars[0]), read(source.invars[0])))
                results = [_convolution(image, kernel, reverses=True, **eqn.params)]
        values.update(zip(eqn.outvars, results, strict=True))
    return [read(atom) for atom in graph.outvars]


def _reversal_of_kernel(eqn: Any, reversals: dict[Any, Any]) -> Any:
    """Returns what reverses a kernel along its window, as in the gradient of a layer's input; None if nothing does."""
    if eqn.primitive is not primitives.conv_general_dilated_p or isinstance(eqn.invars[1], core.Literal):
        return None
    source = reversals.get(eqn.invars[1])
    spatial = eqn.params["dimension_numbers"].rhs_spec[2:]
    return source if source is not None and {*source.params["dimensions"]} == {*spatial} else None


def _run(eqn: Any, operands: list[Any]) -> list[Any]:
    if _has_plan(eqn):
        rule = _RULES[eqn.primitive]
        return [rule(*map(jnp.asarray, operands), **eqn.params)]
    called = _called(eqn)
    if called is not None:
        return _evaluate(called, operands)
    with eqn.ctx.manager:
        results = eqn.primitive.bind(*operands, **eqn.primitive.get_bind_params(eqn.params))
    return list(results) if eqn.primitive.multiple_results else [results]


def _convolution(
    lhs: jax.Array, rhs: jax.Array, *, dimension_numbers: Any, reverses: bool = False, **parameters: Any
) -> jax.Array:
    given, kernel, result = dimension_numbers.lhs_spec, dimension_numbers.rhs_spec, dimension_numbers.out_spec
    parameters.pop("out_sharding", None)
    return convolution(
        lhs,
        rhs,
        window_reversal=(reverses,) * (lhs.ndim - 2),
        dimension_numbers=ConvLayout(
            input_batch=given[0],
            input_feature=given[1],
            input_spatial=tuple(given[2:]),
            kernel_output_feature=kernel[0],
            kernel_input_feature=kernel[1],
            kernel_spatial=tuple(kernel[2:]),
            output_batch=result[0],
            output_feature=result[1],
            output_spatial=tuple(result[2:]),
        ),
        **parameters,
    )


def _reduction(reducer: Reducer) -> Rule:
    def rule(operand: jax.Array, **parameters: Any) -> jax.Array:
        parameters.pop("out_sharding", None)
        return reduce_window(operand, _start(reducer, operand.dtype), reducer, **parameters)

    return rule


def _start(reducer: Reducer, dtype: Any) -> jax.Array:
    """Returns the identity element of a reduction."""
    if reducer == "add":
        return jnp.zeros((), dtype)
    floating = jnp.issubdtype(dtype, jnp.floating)
    limits = (-jnp.inf, jnp.inf) if floating else (jnp.iinfo(dtype).min, jnp.iinfo(dtype).max)
    return jnp.asarray(limits[reducer == "min"], dtype)


def _sum(operand: jax.Array, *, axes: tuple[int, ...], **parameters: Any) -> jax.Array:
    return reduce_sum(operand, axes)


def _scatter(source: jax.Array, operand: jax.Array, *, select_prim: Any, **parameters: Any) -> jax.Array:
    select: Any = {primitives.ge_p: "GE", primitives.gt_p: "GT", primitives.le_p: "LE", primitives.lt_p: "LT"}
    return select_and_scatter(operand, source, jnp.zeros((), source.dtype), select=select[select_prim], **parameters)


_RULES: dict[Any, Rule] = {
    primitives.conv_general_dilated_p: _convolution,
    primitives.reduce_window_max_p: _reduction("max"),
    primitives.reduce_window_min_p: _reduction("min"),
    primitives.reduce_window_sum_p: _reduction("add"),
    primitives.select_and_scatter_add_p: _scatter,
    primitives.reduce_sum_p: _sum,
}
