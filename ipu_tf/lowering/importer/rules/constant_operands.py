"""Reads operands that must be constants while importing."""

from __future__ import annotations

import jax
import numpy as np


def static_integers(value: jax.Array, what: str) -> tuple[int, ...]:
    """Returns the integers of an operand that is a constant of the program.

    Args:
        value: the operand.
        what: what the operand says, for the error, e.g. `slice start`.

    Raises:
        NotImplementedError: if the operand is computed by the program.
    """
    if not isinstance(value, np.ndarray):
        raise NotImplementedError(f"Wanted a constant {what}. Received one computed by the program: {value}.")
    return tuple(int(number) for number in value.ravel())
