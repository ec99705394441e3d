"""Products of one vector with a transposed matrix, as products with the matrix as it is.

    x[768] . transpose(table[50257, 768])    -->    contracts the last axis of both

A language model's last product is one of them: the table of tokens, transposed. XLA:CPU fuses the transposition, and
what the vector is computed from, into the product's innermost loop, and takes 1.6 times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax import lax
from jax.extend import core
from jax.extend.core import primitives

Dimensions = lax.DotDimensionNumbers


def is_of_vector(shapes: Sequence[Sequence[int]], dimensions: Dimensions, matrix: int) -> bool:
    """Returns whether a product's other operand is one vector.

    Args:
        shapes: of both operands.
        dimensions: contracting and batch dimensions, as `lax.dot_general` takes them.
        matrix: which operand is the matrix, 0 or 1.
    """
    contracting, batching = dimensions
    other = shapes[1 - matrix]
    return not any(batching) and math.prod(other) == math.prod(other[axis] for axis in contracting[1 - matrix])


def of_source(dimensions: Dimensions, side: int, permutation: Sequence[int]) -> Dimensions | None:
    """Returns the dimensions of a product with what an operand is the transposition of; None if it has another result.

    Args:
        dimensions: of the product with the transposition, without batch dimensions.
        side: which operand that is, 0 or 1.
        permutation: axis `i` of the transposition is axis `permutation[i]` of the source.
    """
    contracting = [tuple(axes) for axes in dimensions[0]]
    free = [source for axis, source in enumerate(permutation) if axis not in contracting[side]]
    if free != sorted(free):
        return None
    contracting[side] = tuple(permutation[axis] for axis in contracting[side])
    return (contracting[0], contracting[1]), ((), ())


def without_transpositions(function: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """Returns a traced function whose products of vectors take matrices untransposed, in its loops and calls too."""
    return function.replace(jaxpr=_rewritten(function.jaxpr))


def _rewritten(graph: core.Jaxpr) -> core.Jaxpr:
    transposed = {eqn.outvars[0]: eqn for eqn in graph.eqns if eqn.primitive is primitives.transpose_p}
    eqns = [_product(_nested(eqn), transposed) for eqn in graph.eqns]
    same = all(new is old for new, old in zip(eqns, graph.eqns, strict=True))
    return graph if same else graph.replace(eqns=eqns)


def _nested(eqn: core.JaxprEqn) -> core.JaxprEqn:
    """Returns an equation with what its loops and calls compute rewritten."""
    functions = {name: value for name, value in eqn.params.items() if isinstance(value, core.ClosedJaxpr)}
    rewritten = {name: without_transpositions(each) for name, each in functions.items()}
    same = all(rewritten[name].jaxpr is each.jaxpr for name, each in functions.items())
    return eqn if same else eqn.replace(params={**eqn.params, **rewritten})


def _product(eqn: core.JaxprEqn, transposed: dict[Any, core.JaxprEqn]) -> core.JaxprEqn:
    """Returns a product's equation with the source of a transposed matrix."""
    if eqn.primitive is not primitives.dot_general_p:
        return eqn
    shapes: list[Any] = [getattr(each.aval, "shape", ()) for each in eqn.invars]
    for side, matrix in enumerate(eqn.invars):
        found = None if isinstance(matrix, core.Literal) else transposed.get(matrix)
        dimensions = eqn.params["dimension_numbers"]
        if found is not None and is_of_vector(shapes, dimensions, side):
            changed = of_source(dimensions, side, found.params["permutation"])
            if changed is not None:
                operands = [found.invars[0] if place == side else each for place, each in enumerate(eqn.invars)]
                eqn = eqn.replace(invars=operands, params={**eqn.params, "dimension_numbers": changed})
    return eqn
