"""Random bits of the native kernel are those of JAX's and XLA's generators, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from ipu_tf.device import portable
from ipu_tf.device.convolution.native import library, random_bits
from ipu_tf.device.elementwise.evaluate import with_native_elementwise
from ipu_tf.device.numerics import philox
from tests.helpers.library_jit import jit

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")

LEVELS = range(len(library.LEVELS))
WORD = st.integers(0, 2**64 - 1) | st.integers(2**64 - 2**18, 2**64 - 1)
UINT32 = np.dtype(np.uint32)
Draw = Callable[[jax.Array], Any]


def text(function: Draw, *arguments: Any) -> str:
    return jit(function).lower(*arguments).as_text()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("shape", [(1,), (3,), (4, 4), (17,), (2, 3, 50), (random_bits.PART * 2 + 3,), (300000,)])
def test_threefry_is_that_of_jax(shape: tuple[int, ...], level: int) -> None:
    for seed in (0, 7, 2**31 + 5):
        key = jax.random.key(seed)
        found = random_bits.threefry_bits(jax.random.key_data(key), shape, level)
        np.testing.assert_array_equal(found, jax.random.bits(key, shape, np.uint32))


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=15, deadline=None)
@given(state=st.lists(WORD, min_size=3, max_size=3), count=st.integers(1, 200) | st.integers(65000, 140000))
def test_philox_is_that_of_xla(level: int, state: list[int], count: int) -> None:
    with jax.enable_x64(True):
        words = jnp.asarray(np.array(state, np.uint64))
        after, expected = philox._xla_bits(words, (count,), UINT32)
        np.testing.assert_array_equal(random_bits.philox_words(words, count, level), expected)
        native_after, native = philox._native_bits(words, (count,), UINT32)
    np.testing.assert_array_equal(native, expected)
    np.testing.assert_array_equal(native_after, after)


def dropout(key: jax.Array) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 0.5, (40, 30)), 2.0, 0.0)


def in_a_loop(key: jax.Array) -> jax.Array:
    def step(total: jax.Array, each: jax.Array) -> tuple[jax.Array, None]:
        return total + jax.random.normal(each, (20,)), None

    return lax.scan(step, jnp.zeros(20), jax.random.split(key, 5))[0]


def of_many_keys(key: jax.Array) -> jax.Array:
    return jax.vmap(lambda each: jax.random.uniform(each, (4, 9)))(jax.random.split(key, (6,)))


def of_raw_keys(key: jax.Array) -> jax.Array:
    return jax.random.truncated_normal(jax.random.key_data(key) * np.uint32(3), -1.0, 1.0, (70,))


@pytest.mark.parametrize("function", [dropout, in_a_loop, of_many_keys, of_raw_keys])
def test_draws_of_a_program_are_calls(function: Draw, monkeypatch: pytest.MonkeyPatch) -> None:
    key, native = jax.random.key(3), with_native_elementwise(function)
    assert library.RANDOM_BITS in text(native, key)
    np.testing.assert_array_equal(jit(native)(key), jit(function)(key))
    assert library.RANDOM_BITS not in text(portable.portable(native), key)
    monkeypatch.setenv("IPU_TF_NATIVE", "0")
    assert library.RANDOM_BITS not in text(with_native_elementwise(function), key)


@pytest.mark.parametrize(
    ("draw", "implementation"),
    [
        (lambda key: jax.random.bits(key, (8,), np.uint8), "threefry2x32"),
        (lambda key: jax.random.bits(key, (0,), np.uint32), "threefry2x32"),
        (lambda key: jax.random.bits(key, (8,), np.uint32), "rbg"),
    ],
    ids=["8 bits", "none", "another generator"],
)
def test_other_draws_stay_with_jax(draw: Draw, implementation: str) -> None:
    key, native = jax.random.key(1, impl=implementation), with_native_elementwise(draw)
    assert library.RANDOM_BITS not in text(native, key)
    np.testing.assert_array_equal(native(key), draw(key))


def test_keys_that_are_not_partitionable_stay_with_jax() -> None:
    with jax.threefry_partitionable(False):
        assert library.RANDOM_BITS not in text(with_native_elementwise(dropout), jax.random.key(1))


def test_philox_is_a_call_but_in_code_for_files() -> None:
    with jax.enable_x64(True):
        state = np.array([1, 2, 3], np.uint64)

        def draw(state: jax.Array) -> jax.Array:
            return philox.philox_bits(state, (9,), UINT32)[1]

        assert library.RANDOM_BITS in text(draw, state)
        assert library.RANDOM_BITS not in text(portable.portable(draw), state)
        np.testing.assert_array_equal(jit(draw)(state), jit(portable.portable(draw))(state))


@pytest.mark.parametrize(
    ("states", "words", "message"),
    [
        ((3,), [2, 0, 8, 1], "states are not of the shape"),
        ((2,), [2, 1, 8, 1], "states are not of the shape"),
        ((2,), [2, 2, 8, 1], "another version"),
        ((2,), [2, 0, 9, 1], "bits are not of the shape"),
        ((2,), [2, 0, 8, 0], "not positive"),
        ((2,), [2, 0, 8], "another version"),
    ],
)
def test_damaged_calls_are_refused(states: tuple[int, ...], words: list[int], message: str) -> None:
    call = jax.ffi.ffi_call(library.needed().target(library.RANDOM_BITS), jax.ShapeDtypeStruct((8,), np.uint32))
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(call(np.zeros(states, np.uint32), shapes=np.array(words, np.int64)))
