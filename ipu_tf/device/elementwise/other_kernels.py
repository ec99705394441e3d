"""Which equations are calls of other native kernels than that of elementwise operations."""

from __future__ import annotations

from collections.abc import Callable

import jax
from jax.extend import core

from ipu_tf.device.convolution.native.random_bits import drawn, is_draw
from ipu_tf.device.convolution.native.row_product import computed, is_row_product

Computation = Callable[..., jax.Array]
"""Computes the one result of an equation, from it and its operands."""
_KERNELS: tuple[tuple[Callable[[core.JaxprEqn], bool], Computation], ...] = (
    (is_draw, drawn),
    (is_row_product, computed),
)


def kernel_of(eqn: core.JaxprEqn) -> Computation | None:
    """Returns what computes an equation by a native kernel; None if it is for XLA."""
    return next((compute for is_one, compute in _KERNELS if is_one(eqn)), None)
