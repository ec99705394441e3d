"""Philox4x32-10 random number generator, with the same bits and states as XLA's and TensorFlow's.

A state is three `uint64`: the key, then a 128-bit counter, low word first. One counter value makes one block
of 128 bits: four elements of up to 32 bits each, or two of 64.

    block  counter + 0      counter + 1      ...
    bits   [0] [1] [2] [3]  [4] [5] [6] [7]  ...
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.convolution.native import library, random_bits

_U32, _U64 = np.uint32, np.uint64
_MULTIPLIERS = (_U64(0xD2511F53), _U64(0xCD9E8D57))
_KEY_STEPS = (_U32(0x9E3779B9), _U32(0xBB67AE85))
_ROUNDS = 10
_CHUNK = 1 << 15
"""Most elements that are computed at a time."""


def philox_bits(state: jax.Array | np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> tuple[jax.Array, jax.Array]:
    """Draws random bits; returns the new state and the bits.

    On a CPU the native kernel draws words of 32 bits, where it is; what XLA computes has the same bits.

    Args:
        state: 3 `uint64` (key, low and high word of the counter), or 2 (key and low word; the high one is 0).
        shape: of the bits.
        dtype: an unsigned integer type; one narrower than 32 bits takes the low bits of 32.

    Returns:
        The new state, of the shape of `state`, and the bits.

    Example:
        With `jax.enable_x64(True)`: `philox_bits(np.zeros(3, np.uint64), (2, 3), np.dtype(np.uint32))`.
    """
    state = jnp.asarray(state)
    words = dtype.itemsize == 4 and math.prod(shape) > 0 and state.shape == (3,)
    return (_native_bits if words and library.runs_here() else _xla_bits)(state, shape, dtype)


@functools.partial(jax.jit, static_argnames=("shape", "dtype"))
def _native_bits(state: jax.Array, shape: tuple[int, ...], dtype: np.dtype) -> tuple[jax.Array, jax.Array]:
    count = math.prod(shape)
    return _after(state, -(-count // 4)), lax.reshape(random_bits.philox_words(state, count).astype(dtype), shape)


@functools.partial(jax.jit, static_argnames=("shape", "dtype"))
def _xla_bits(state: jax.Array, shape: tuple[int, ...], dtype: np.dtype) -> tuple[jax.Array, jax.Array]:
    """Draws random bits in XLA's own code.

    Every element computes the whole block it lies in and keeps its own part. That is up to four times the
    arithmetic of computing each block once, but there is nothing to shuffle: XLA vectorises it, which on a CPU
    takes a tenth of the time.
    """
    count = math.prod(shape)
    per_block = 2 if dtype.itemsize == 8 else 4
    counter = _counter(state)

    def at(position: jax.Array) -> jax.Array:
        low, high = _advanced(counter, position // _U64(per_block))
        words = _block(_halves(state[0]), (*_halves(low), *_halves(high)))
        lane = position % _U64(per_block)
        picked = _pick_64_bits(words, lane) if per_block == 2 else _pick_32_bits(words, lane)
        return picked.astype(dtype)

    return _after(state, -(-count // per_block)), lax.reshape(_in_chunks(at, count), shape)


def _counter(state: jax.Array) -> tuple[jax.Array, jax.Array]:
    return state[1], state[2] if state.shape == (3,) else _U64(0) * state[1]


def _after(state: jax.Array, blocks: int) -> jax.Array:
    """Returns the state after so many blocks."""
    after = (state[0], *_advanced(_counter(state), _U64(blocks)))
    return lax.concatenate([lax.expand_dims(word, (0,)) for word in after[: state.shape[0]]], 0)


def _in_chunks(at: Callable[[jax.Array], jax.Array], count: int) -> jax.Array:
    """Evaluates `at` for positions up to `count` in a loop, which keeps XLA from recomputing them for each use.

    A mask of dropout is used going forward and back, and by the gradient of a pooling layer below it once for each
    place of a window. An optimization barrier would not do: XLA drops it before it fuses.
    """
    chunks = -(-count // _CHUNK)
    if chunks < 2:
        return at(lax.iota(_U64, count))
    chunk = -(-count // chunks)
    starts = lax.iota(_U64, chunks) * _U64(chunk)
    return lax.map(lambda start: at(start + lax.iota(_U64, chunk)), starts).reshape(-1)[:count]


def _advanced(counter: tuple[jax.Array, jax.Array], blocks: jax.Array | np.uint64) -> tuple[jax.Array, jax.Array]:
    """Advances the counter's two words by so many blocks."""
    low = counter[0] + blocks
    return low, counter[1] + (low < blocks).astype(_U64)


def _halves(word: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Splits 64-bit integers into low and high 32 bits."""
    return word.astype(_U32), (word >> _U64(32)).astype(_U32)


def _block(key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    """Computes one Philox block: four words of random bits from a key of two words and a counter of four."""
    for _ in range(_ROUNDS):
        low0, high0 = _halves(counter[0].astype(_U64) * _MULTIPLIERS[0])
        low1, high1 = _halves(counter[2].astype(_U64) * _MULTIPLIERS[1])
        counter = (high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0)
        key = (key[0] + _KEY_STEPS[0], key[1] + _KEY_STEPS[1])
    return counter


def _pick_32_bits(words: tuple[jax.Array, ...], lane: jax.Array) -> jax.Array:
    first = lax.select(lane == _U64(0), words[0], words[1])
    last = lax.select(lane == _U64(2), words[2], words[3])
    return lax.select(lane < _U64(2), first, last)


def _pick_64_bits(words: tuple[jax.Array, ...], lane: jax.Array) -> jax.Array:
    low, high = (
        lax.select(lane == _U64(0), words[0], words[2]),
        lax.select(lane == _U64(0), words[1], words[3]),
    )
    return low.astype(_U64) | (high.astype(_U64) << _U64(32))
