"""float16 overflow (saturation or NaN) and stochastic rounding as on an IPU.

    operands (float16) ──► computed in float32 ──► rounded to a float16 number ──► narrowed ──► float16
                                                   to nearest, or up or down       beyond +-65504: that, or NaN
                                                   by chance

Computing in float32 and rounding once gives the correctly rounded sum, difference, product, quotient or square root.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.convolution.native import library

LARGEST = 65504.0
"""The largest finite float16."""
OVERFLOW = 65520.0
"""The least number that is rounded, to nearest, to something beyond `LARGEST`."""

Key = jax.Array | tuple[jax.Array, jax.Array]

_EXPONENT = np.uint32(0x7F800000)
_LEAST_EXPONENT = np.uint32((127 - 14) << 23)  # of normal float16 numbers, as float32 has it
_FRACTION_BITS = np.uint32(10 << 23)
_RECIPROCAL = np.uint32(254 << 23)  # minus the bits of a power of two gives those of its reciprocal
_STEP = 0x9E3779B9  # odd: 2**32 keys before one comes again
PART, MOST_PARTS = 2**15, 16
"""Elements of a part of the native kernel's call, about, and the most parts."""


def narrowed(value: jax.Array, nan_on_overflow: bool = False) -> jax.Array:
    """Converts float32 to float16, rounded to nearest even; overflow saturates or becomes NaN.

    Args:
        value: float32, of any shape. Numbers representable in float16 are unchanged.
        nan_on_overflow: whether numbers out of range become NaN; otherwise it becomes +-65504. NaN stays NaN.

    Example:
        >>> import jax.numpy as jnp
        >>> narrowed(jnp.float32([1e5, -jnp.inf, 2.5])).tolist()
        [65504.0, -65504.0, 2.5]
    """
    if nan_on_overflow:
        half = lax.convert_element_type(value, np.float16)
        return jnp.where(jnp.isinf(half), np.float16(np.nan), half)
    return lax.convert_element_type(lax.clamp(np.float32(-LARGEST), value, np.float32(LARGEST)), np.float16)


def stochastic(value: jax.Array, key: Key) -> jax.Array:
    """Rounds float32 numbers stochastically to one of the two nearest float16 numbers; unbiased.

    On a CPU the native kernel does, where it is; what XLA computes has the same bits.

    Args:
        value: float32, of any shape. Infinities and NaN are unchanged.
        key: `uint32[2]`, or two `uint32[]`; the same key rounds the same way.

    Returns:
        Float32 numbers that float16 has, those beyond its largest but for their range.
    """
    if value.size > 0 and library.runs_here():
        return stochastic_by_kernel(value, key)
    exponent = lax.bitcast_convert_type(value, np.uint32) & _EXPONENT
    spacing_bits = jnp.maximum(exponent, _LEAST_EXPONENT) - _FRACTION_BITS
    spacing = lax.bitcast_convert_type(spacing_bits, np.float32)
    scaled = value * lax.bitcast_convert_type(_RECIPROCAL - spacing_bits, np.float32)
    below = jnp.floor(scaled)
    up = uniform(key, value.shape) < scaled - below
    return (below + lax.convert_element_type(up, np.float32)) * spacing


def stochastic_by_kernel(value: jax.Array, key: Key, level: int | None = None) -> jax.Array:
    """Rounds as `stochastic` in one call of the native kernel, which XLA cannot fuse into each use of the number.

    What it fuses made seven times as many instructions of a step in float16, and compiling it longer than its training.

    Args:
        value: float32, of any shape, not empty.
        key: as of `stochastic`.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Raises:
        RuntimeError: if there is no native library.
    """
    native = library.needed()
    slices = max(1, min(MOST_PARTS, value.size // PART))
    words = np.array([library.level_or_best(level), value.size, slices], np.int64)
    result = jax.ShapeDtypeStruct(value.shape, np.float32)
    call = jax.ffi.ffi_call(native.target(library.ROUNDING), result, vmap_method="broadcast_all")
    rounded: jax.Array = call(value, jnp.stack([key[0], key[1]]), shapes=words)
    return rounded


def uniform(key: Key, shape: tuple[int, ...]) -> jax.Array:
    """Draws uniform float32 numbers in [0, 1): multiples of 2**-24.

    A hash of the position and the key, some ten integer operations a number: rounding wants many numbers, and JAX's own
    generators would cost ten times the arithmetic that is rounded.

    Args:
        key: `uint32[2]`, or two `uint32[]`.
        shape: of the result.
    """
    first = _mixed(key[0])
    second = _mixed(key[1] ^ first)
    places = lax.reshape(lax.iota(np.uint32, math.prod(shape)), shape)
    bits = _mixed(_mixed(places ^ first) + second)
    return lax.convert_element_type(bits >> np.uint32(8), np.float32) * np.float32(2.0**-24)


@dataclasses.dataclass(frozen=True)
class DrawnKey:
    """A key to draw with, and the seed after it.

    Attributes:
        start: the seed before the first of these draws in a row, `uint32[2]`.
        count: how many draws that were.
        key: to draw with now, two `uint32[]`; the first is the same in all of them, so that it is hashed once.
        seed: the next one.
    """

    start: jax.Array
    count: int
    key: tuple[jax.Array, jax.Array]
    seed: jax.Array


def next_key(seed: jax.Array, last: DrawnKey | None = None) -> DrawnKey:
    """Splits a seed, `uint32[2]`, into the next seed and a key to draw with now.

    Args:
        seed: the present one.
        last: the draw before. If `seed` is what it left, the new one is computed from the seed before all draws in a
            row, by one addition: XLA fuses what makes a key into each use of it, a chain of additions as well.
    """
    start, count = (last.start, last.count) if last is not None and last.seed is seed else (seed, 0)
    return DrawnKey(
        start, count + 1, (start[0], start[1] + _nth(count)), start + np.array([0, _nth(count + 1)], np.uint32)
    )


def _nth(count: int) -> np.uint32:
    """Returns what so many draws add to a seed's second number."""
    return np.uint32(_STEP * count % 2**32)


def _mixed(bits: jax.Array) -> jax.Array:
    """Hashes 32-bit integers by a permutation in which every output bit depends on all input bits."""
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x7FEB352D)
    bits = (bits ^ (bits >> np.uint32(15))) * np.uint32(0x846CA68B)
    return bits ^ (bits >> np.uint32(16))
