"""Evaluates flat jaxprs: all equations or some, with JAX's own primitives or otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
from jax.extend import core

from ipu_tf.device.jaxprs.flat_equations import Atom, Equation, FlatFunction
from ipu_tf.device.op_scopes import scope_named

Compute = Callable[[Sequence[Any]], Sequence[Any]]
"""Computes an equation's results, of its operands."""


def traced_and_evaluated(
    function: Callable[..., Any], arguments: Sequence[Any], evaluate: Callable[[core.ClosedJaxpr, list[Any]], Any]
) -> Any:
    """Traces a function of trees of arrays, and returns its results as `evaluate` computes them.

    Args:
        function: traceable by JAX.
        arguments: its arguments.
        evaluate: takes the traced function and the arrays of the arguments; returns those of the results.
    """
    leaves, tree = jax.tree.flatten(arguments)
    structure: list[Any] = []

    def flat(*values: Any) -> list[Any]:
        results, results_tree = jax.tree.flatten(function(*jax.tree.unflatten(tree, values)))
        structure.append(results_tree)
        return results

    traced = jax.make_jaxpr(flat)(*leaves)
    return jax.tree.unflatten(structure[-1], evaluate(traced, leaves))


def retraced(function: core.ClosedJaxpr, evaluate: Callable[[Sequence[Any]], Sequence[Any]]) -> core.ClosedJaxpr:
    """Traces what computes a traced function's results, of arrays like its arguments."""
    types = [jax.ShapeDtypeStruct(each.shape, each.dtype, weak_type=each.weak_type) for each in function.in_avals]
    return jax.make_jaxpr(lambda *values: evaluate(values))(*types)


def bound(equation: Equation, operands: Sequence[Any], parameters: dict[str, Any] | None = None) -> Sequence[Any]:
    """Evaluates an equation of arrays or tracers, with its own parameters or others, and returns its results."""
    eqn = equation.eqn
    given = eqn.primitive.get_bind_params(eqn.params if parameters is None else parameters)
    with eqn.ctx.manager, scope_named(equation.scope):
        results = eqn.primitive.bind(*operands, **given)
    return results if eqn.primitive.multiple_results else [results]


def needed(
    flat: FlatFunction, wanted: Iterable[Atom], given: Iterable[int], effects: bool = True
) -> tuple[list[Equation], set[int]]:
    """Returns the equations, in order, and the values that wanted ones depend on.

    Args:
        flat: the function.
        wanted: values that are computed.
        given: values that need not be computed.
        effects: whether equations with effects are wanted too.
    """
    known = {*given}
    read = {atom for atom in wanted if isinstance(atom, int)} - known
    equations = []
    for equation in reversed(flat.equations):
        if (effects and equation.eqn.effects) or not read.isdisjoint(equation.outputs):
            equations.append(equation)
            read |= {*equation.values} - known
    return equations[::-1], read


def evaluate(
    equations: Iterable[Equation],
    wanted: Iterable[Atom],
    values: dict[int, Any],
    otherwise: Mapping[Equation, Compute] | None = None,
) -> list[Any]:
    """Evaluates equations, and returns the wanted values.

    Args:
        equations: in an order in which they can be evaluated.
        wanted: values and constants.
        values: those that are known, by number; the computed ones are added.
        otherwise: what computes equations that are not evaluated as they are.
    """

    def read(atom: Atom) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for each in equations:
        compute, operands = (otherwise or {}).get(each), [read(atom) for atom in each.inputs]
        results = bound(each, operands) if compute is None else compute(operands)
        values.update(zip(each.outputs, results, strict=True))
    return [read(atom) for atom in wanted]
