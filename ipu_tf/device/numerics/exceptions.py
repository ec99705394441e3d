"""Detects floating-point exceptions by op: invalid operation, division by zero, overflow.

A program that checks for them carries a number as hidden state: 0, or the first exception, as the index of the op in
the program's list of checked ops and a bit for each kind. The number is checked after the execution.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.errors import DeviceError

EXCEPTIONS = "exceptions"
"""The piece of hidden state that holds the first exception: `uint32[]`."""
EXCEPTIONS_TYPE = jax.ShapeDtypeStruct((), np.dtype(np.uint32))
KINDS = {"inv": "an invalid operation", "div0": "a division by zero", "oflo": "an overflow"}
"""The kinds of exceptions, by the names of the attributes of `floating_point_behaviour` that ask to stop for them."""

_BITS = {name: 1 << place for place, name in enumerate(KINDS)}
_INFINITE, _NAN = 1, 2
_PLACE = 1 << len(KINDS)
_POLES = {"stablehlo.log": 0.0, "stablehlo.log_plus_one": -1.0, "stablehlo.rsqrt": 0.0}


class FloatingPointExceptionError(DeviceError, ArithmeticError):
    """Raised if a program is stopped by a floating-point exception.

    Args:
        kinds: which, as names of `KINDS`.
        origin: the operation, by TensorFlow's name for it.
        replica: the number of the replica; None where there is one.
    """

    def __init__(self, kinds: Sequence[str], origin: str, replica: int | None = None) -> None:
        what = " and ".join(KINDS[kind] for kind in kinds)
        where = "" if replica is None else f" on replica {replica}"
        bits = ", ".join(f"floating_point_behaviour.{kind}" for kind in kinds)
        super().__init__(
            f"Tiles in excepted state: {what} in `{origin}`{where}, the first of this run. Variables keep the values "
            f"they had before it. The configuration asks to stop for this: {bits}."
        )


def found(
    name: str,
    operands: Sequence[jax.Array],
    results: Sequence[jax.Array],
    kinds: Collection[str],
    elementwise: bool,
    overflow: float = np.inf,
) -> jax.Array:
    """Detects the exceptions of one operation, as bits of a `uint32[]`.

    NaN or infinity in a result is no exception if it was in the operands.

    Args:
        name: of the operation, e.g. `stablehlo.divide`.
        operands: its floating-point operands.
        results: its floating-point results.
        kinds: names of `KINDS` to look for.
        elementwise: whether each element of a result depends on the same element of the operands alone.
        overflow: the least magnitude of a result that counts as overflow.
    """
    finite, numbers = _finite_and_numbers(operands, elementwise)
    total = jnp.uint32(0)
    for result in results:
        endless = finite & (jnp.abs(result) >= overflow)
        pole = endless & _at_pole(name, operands)
        seen = {"inv": numbers & jnp.isnan(result), "div0": pole, "oflo": endless & ~pole}
        total = total | _reduced(_as_bits({kind: seen[kind] for kind in _in_order(kinds)}))
    return total


def conversion_exception_bits(value: jax.Array, dtype: np.dtype, kinds: Collection[str]) -> jax.Array:
    """Detects the exceptions of a conversion to an integer: NaN, or numbers beyond 32 bits, are invalid."""
    largest = 2.0**32 if dtype == np.uint32 else 2.0**31
    fits = (value >= -(2.0**31)) & (value < largest) if dtype.itemsize <= 4 else jnp.isfinite(value)
    return _as_bits({kind: jnp.any(~fits) if kind == "inv" else jnp.bool_(False) for kind in _in_order(kinds)})


def comparison_exception_bits(left: jax.Array, right: jax.Array, kinds: Collection[str]) -> jax.Array:
    """Detects the exceptions of an ordered comparison: NaN is invalid."""
    unordered = jnp.any(jnp.isnan(left) | jnp.isnan(right))
    return _as_bits({kind: unordered if kind == "inv" else jnp.bool_(False) for kind in _in_order(kinds)})


def noted(code: jax.Array, bits: jax.Array, place: int) -> jax.Array:
    """Updates the hidden state after an operation: records the first exception.

    Args:
        code: the hidden state before it.
        bits: the operation's exceptions.
        place: of the operation in the program's list of checked ones.
    """
    return jnp.where((code == 0) & (bits != 0), np.uint32((place + 1) * _PLACE) + bits, code)


def check_exceptions(codes: np.ndarray, origins: Sequence[str]) -> None:
    """Raises the first floating-point exception of an execution, from its hidden state.

    Args:
        codes: `uint32[]`, or `uint32[replicas]`.
        origins: the program's checked operations, by TensorFlow's names.

    Raises:
        FloatingPointExceptionError: if there was an exception.
    """
    for replica, code in enumerate(np.atleast_1d(codes)):
        if code:
            kinds = [name for name, bit in _BITS.items() if int(code) & bit]
            origin = origins[int(code) // _PLACE - 1]
            raise FloatingPointExceptionError(kinds, origin, replica if np.ndim(codes) else None)


def _finite_and_numbers(operands: Sequence[jax.Array], elementwise: bool) -> tuple[jax.Array, jax.Array]:
    """Tests whether all operands are finite, and whether none is NaN: element by element, or for whole arrays."""
    worst = jnp.uint32(0)
    for operand in operands:
        bits = jnp.where(jnp.isnan(operand), np.uint32(_NAN), jnp.where(jnp.isinf(operand), np.uint32(_INFINITE), 0))
        worst = worst | (bits if elementwise else _reduced(bits))
    return worst == 0, worst < _NAN


def _reduced(bits: jax.Array) -> jax.Array:
    """Returns the bits of all elements as one number.

    One reduction an operation and not one a kind: what it reads, such as rounding by chance, XLA computes anew in each.
    """
    return lax.reduce(bits, np.uint32(0), lax.bitwise_or, tuple(range(bits.ndim)))


def _at_pole(name: str, operands: Sequence[jax.Array]) -> jax.Array:
    """Finds the poles of a function, where its result is infinite by definition, not by overflow."""
    if name == "stablehlo.divide":
        return jnp.asarray(operands[1] == 0)
    if name == "stablehlo.power":
        return jnp.asarray(operands[0] == 0)
    if name in ("chlo.atanh", "mhlo.atanh"):
        return jnp.abs(operands[0]) == 1
    if name == "stablehlo.triangular_solve":  # TensorFlow's have no diagonal that is taken for ones
        return jnp.any(jnp.diagonal(operands[0], axis1=-2, axis2=-1) == 0)
    return jnp.asarray(operands[0] == _POLES[name]) if name in _POLES else jnp.bool_(False)


def _in_order(kinds: Collection[str]) -> list[str]:
    """Returns kinds in one order: a set's differs between processes, and the executable cache's key has the program."""
    return [kind for kind in KINDS if kind in kinds]


def _as_bits(masks: dict[str, jax.Array]) -> jax.Array:
    total = jnp.uint32(0)
    for kind, mask in masks.items():
        total = total | jnp.where(mask, np.uint32(_BITS[kind]), np.uint32(0))
    return total
