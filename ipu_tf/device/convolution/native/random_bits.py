"""Random bits by the native kernel: those of JAX's Threefry, and of XLA's and TensorFlow's Philox.

XLA makes code for the rounds of a generator wherever a program draws, 0.3 to 0.6 s each: dropout is a third of the time
that a small convolutional network is compiled in. The kernel is there already, and draws the same bits.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.extend import core

from ipu_tf.device.convolution.native import library

PART, MOST_PARTS = 2**15, 16
"""Elements of a part of a call, about, and the most parts."""


class Algorithm(enum.Enum):
    """A generator; numbers are those of `random.c`."""

    THREEFRY = 0
    PHILOX = 1


def threefry_bits(keys: jax.Array, shape: Sequence[int], level: int | None = None) -> jax.Array:
    """Draws what `jax.random.bits` does, with `jax_threefry_partitionable` on, as it is by default.

    Args:
        keys: `[..., 2]`, uint32: data of keys.
        shape: of the bits of a key, not empty.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `[..., *shape]`, uint32.

    Raises:
        RuntimeError: if there is no native library.
    """
    return _bits(Algorithm.THREEFRY, keys, shape, level)


def philox_words(state: jax.Array, count: int, level: int | None = None) -> jax.Array:
    """Draws 32-bit words, four for each value of the counter.

    Args:
        state: 3 `uint64`: key, low and high word of the counter.
        count: of the words, 1 or more.
        level: the most capable instruction set to use, an index of `library.LEVELS`; by default any.

    Returns:
        `[count]`, uint32.

    Raises:
        RuntimeError: if there is no native library.
    """
    halves = lax.bitcast_convert_type(state, np.uint32)
    return _bits(Algorithm.PHILOX, halves.reshape(6), (count,), level)


def _bits(algorithm: Algorithm, states: jax.Array, shape: Sequence[int], level: int | None) -> jax.Array:
    native = library.needed()
    elements = math.prod(shape)
    slices = max(1, min(MOST_PARTS, elements // PART))
    words = np.array([library.level_or_best(level), algorithm.value, elements, slices], np.int64)
    result = jax.ShapeDtypeStruct((*states.shape[:-1], *shape), np.uint32)
    call = jax.ffi.ffi_call(native.target(library.RANDOM_BITS), result, vmap_method="expand_dims")
    bits: jax.Array = call(states, shapes=words)
    return bits


def is_draw(eqn: core.JaxprEqn) -> bool:
    """Returns whether an equation draws what the native kernel draws too: 32 bits an element, by counters."""
    settings: Any = jax.config  # its options are attributes that it declares while it runs
    if eqn.primitive.name != "random_bits" or not settings.jax_threefry_partitionable:
        return False
    keys: Any = eqn.invars[0].aval
    parameters = eqn.params
    return (
        str(keys.dtype) == "key<fry>"
        and parameters["bit_width"] == 32
        and math.prod((*keys.shape, *parameters["shape"])) > 0
    )


def drawn(eqn: core.JaxprEqn, keys: jax.Array) -> jax.Array:
    """Returns the bits that an equation draws."""
    return threefry_bits(jax.random.key_data(keys), eqn.params["shape"])
