"""Orders a program's sums and gathers over instances: each takes a token that the one before it gives.

    first sum ──token──► loop (its sums, in each iteration) ──token──► last sum

XLA runs what does not depend on each other in any order, and calls of the memory wait for the other instances: two sums
in one order here and another there would wait for each other for ever. XLA knows that of its own collectives only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from ipu_tf.device.convolution.native import library
from ipu_tf.device.instances.joined import group
from ipu_tf.device.jaxprs.evaluation import bound, traced_and_evaluated
from ipu_tf.device.jaxprs.flat_equations import Atom, Equation, flattened, inner
from ipu_tf.device.op_scopes import scope_named

_Evaluated = tuple[Sequence[Any], jax.Array]
"""Results, and the token after them."""


def through_memory() -> bool:
    """Returns whether what is traced now exchanges values with other instances through shared memory."""
    others = group()
    return others is not None and others.memory is not None and library.runs_here()


def in_one_order(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a function that JAX will trace: its exchanges through shared memory come one after the other.

    Args:
        function: traceable by JAX, of trees of arrays.
    """

    @functools.wraps(function)
    def run(*arguments: Any) -> Any:
        if not through_memory():
            return function(*arguments)
        return traced_and_evaluated(function, arguments, _ordered)

    return run


def _ordered(traced: core.ClosedJaxpr, arguments: Sequence[Any]) -> Sequence[Any]:
    if not _exchanges(traced.jaxpr):
        results: Sequence[Any] = core.jaxpr_as_fun(traced)(*arguments)
        return results
    return _evaluated(traced, arguments, jnp.zeros(1, np.int32))[0]


def _is_exchange(eqn: core.JaxprEqn) -> bool:
    native = library.loaded()
    return native is not None and eqn.params.get("target_name") == native.target(library.INSTANCE_SUM)


def _exchanges(graph: core.Jaxpr) -> bool:
    """Returns whether a jaxpr, or one inside of it, exchanges values."""
    return any(_is_exchange(eqn) or any(map(_exchanges, inner(eqn))) for eqn in graph.eqns)


def _evaluated(function: core.ClosedJaxpr, arguments: Sequence[Any], token: jax.Array) -> _Evaluated:
    """Evaluates a function, its exchanges after what the token depends on."""
    flat = flattened(function)
    values = {**flat.constants, **dict(zip(flat.inputs, arguments, strict=True))}

    def read(atom: Atom) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in flat.equations:
        results, token = _step(equation, [read(atom) for atom in equation.inputs], token)
        values.update(zip(equation.outputs, results, strict=True))
    return [read(atom) for atom in flat.outputs], token


def _step(equation: Equation, operands: list[Any], token: jax.Array) -> _Evaluated:
    eqn = equation.eqn
    if _is_exchange(eqn):
        results = bound(equation, [operands[0], token])
        return results, results[1]
    if not any(map(_exchanges, inner(eqn))):
        return bound(equation, operands), token
    with eqn.ctx.manager, scope_named(equation.scope):
        return _STEPS.get(equation.name, _called)(eqn, operands, token)


def _called(eqn: core.JaxprEqn, operands: list[Any], token: jax.Array) -> _Evaluated:
    """Evaluates what an equation calls; what else it does, such as computing anew for the gradient, is done by then."""
    [called] = inner(eqn)
    return _evaluated(core.ClosedJaxpr(called, ()), operands, token)


def _scan(eqn: core.JaxprEqn, operands: list[Any], token: jax.Array) -> _Evaluated:
    given, consts, carried = eqn.params, eqn.params["num_consts"], eqn.params["num_carry"]

    def body(carry: tuple[Any, ...], rows: Sequence[Any]) -> tuple[tuple[Any, ...], Sequence[Any]]:
        results, after = _evaluated(given["jaxpr"], [*operands[:consts], *carry[1:], *rows], carry[0])
        return (after, *results[:carried]), list(results[carried:])

    first, rows = (token, *operands[consts : consts + carried]), operands[consts + carried :]
    order = {name: given[name] for name in ("length", "reverse", "unroll")}
    last, made = lax.scan(body, first, rows, **order)
    return [*last[1:], *made], last[0]


def _while(eqn: core.JaxprEqn, operands: list[Any], token: jax.Array) -> _Evaluated:
    """Evaluates a loop; its condition is computed at the end of each iteration, since it may exchange values too."""
    given = eqn.params
    of_condition, of_body = given["cond_nconsts"], given["cond_nconsts"] + given["body_nconsts"]

    def condition(carry: Sequence[Any], before: jax.Array) -> tuple[Any, ...]:
        [goes_on], after = _evaluated(given["cond_jaxpr"], [*operands[:of_condition], *carry], before)
        return goes_on, after, *carry

    def body(state: tuple[Any, ...]) -> tuple[Any, ...]:
        carry, after = _evaluated(given["body_jaxpr"], [*operands[of_condition:of_body], *state[2:]], state[1])
        return condition(carry, after)

    _, after, *results = lax.while_loop(lambda state: state[0], body, condition(operands[of_body:], token))
    return results, after


def _cond(eqn: core.JaxprEqn, operands: list[Any], token: jax.Array) -> _Evaluated:
    def branch(function: core.ClosedJaxpr) -> Callable[..., tuple[Any, ...]]:
        def run(before: jax.Array, *values: Any) -> tuple[Any, ...]:
            results, after = _evaluated(function, values, before)
            return after, *results

        return run

    after, *results = lax.switch(operands[0], [branch(each) for each in eqn.params["branches"]], token, *operands[1:])
    return results, after


_STEPS: dict[str, Callable[[core.JaxprEqn, list[Any], jax.Array], _Evaluated]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
