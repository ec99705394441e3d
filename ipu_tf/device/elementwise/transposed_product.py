"""Transposes the left operand of a matrix product beforehand, as gradients of weights have it.

    weights' gradient [inputs, outputs] = x [rows, inputs], transposed, times g [rows, outputs]

XLA's product reads such a matrix down its columns. Where a row has a power of two bytes, as with 256 or 1024 inputs,
the numbers of a column share a few places of the cache: a product of 1024 rows with 1024 inputs and 256 outputs took
2.6 ms, and 1.2 with the transposition (two cores of an AMD Zen 5, 27 November 2026). Products that the native kernel
takes, `matrix_product.py`, are not among these.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

WIDTH = 64
"""Inputs whose multiples are rows of 256 bytes: with other numbers of them the product is as fast as it gets."""
FEWEST_INPUTS = 128
LEAST = 2**16
"""Numbers of the smallest matrix that is transposed. The product of a smaller one takes about as long."""


def is_transposed_product(eqn: core.JaxprEqn) -> bool:
    """Returns whether an equation is a float32 product, not batched, whose left matrix is faster transposed."""
    if eqn.primitive.name != "dot_general" or any(eqn.params["dimension_numbers"][1]):
        return False
    types: list[Any] = [each.aval for each in (*eqn.invars, *eqn.outvars)]
    if any(each.dtype != np.float32 for each in types):
        return False
    contracted, shape = eqn.params["dimension_numbers"][0][0], types[0].shape
    leading = sorted(contracted) == list(range(len(contracted))) and 0 < len(contracted) < len(shape)
    return leading and pays(math.prod(shape[: len(contracted)]), math.prod(shape[len(contracted) :]))


def pays(rows: int, inputs: int) -> bool:
    """Returns whether a matrix `[rows, inputs]` is to be transposed.

    Example:
        >>> pays(1024, 1024), pays(1024, 1000), pays(32, 256)
        (True, False, False)
    """
    return inputs >= FEWEST_INPUTS and inputs % WIDTH == 0 and rows * inputs >= LEAST


def transposed_product(eqn: core.JaxprEqn, left: jax.Array, right: jax.Array) -> jax.Array:
    """Returns the result of an equation that `is_transposed_product`.

    Args:
        eqn: a `dot_general`.
        left: float32; its first axes are summed over, `[*rows, *inputs]`.
        right: float32; it has the same rows, anywhere.

    Returns:
        `[*inputs, *outputs]`, float32.
    """
    contracted, batch = eqn.params["dimension_numbers"]
    left_axes, right_axes = zip(*sorted(zip(*contracted, strict=True)), strict=True)
    last = tuple(range(left.ndim - len(left_axes), left.ndim))
    # Without the barrier XLA makes one operation of transposition and product.
    rows = lax.optimization_barrier(jnp.moveaxis(left, left_axes, last))
    parameters = {**eqn.params, "dimension_numbers": ((last, right_axes), batch)}
    product: jax.Array = lax.dot_general_p.bind(rows, right, **parameters)
    return product
