"""Stochastic rounding by the native kernel gives the numbers that XLA computes, bit for bit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_tf.device import portable
from ipu_tf.device.convolution.native import library
from ipu_tf.device.numerics import half
from tests.helpers.library_jit import jit

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")

LEVELS = range(len(library.LEVELS))
WORD = st.integers(0, 2**32 - 1)
SPECIAL = (np.inf, -np.inf, np.nan, 0.0, -0.0, 65504, -65520, 65519, 3e38, -3e38, 6e-8, -6e-8, 2.9e-8, 1e-30)


def by_xla(value: jax.Array, key: jax.Array) -> np.ndarray:
    """What code for files computes, which may call no native kernel."""
    return np.asarray(jit(portable.portable(half.stochastic))(value, key))


def bits(numbers: jax.Array | np.ndarray) -> np.ndarray:
    return np.asarray(numbers).view(np.uint32)


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=20, deadline=None)
@given(
    words=st.tuples(WORD, WORD),
    seed=st.integers(0, 1000),
    scale=st.sampled_from([1e-8, 1e-6, 6e-5, 1.0, 1e4, 1e30]),
    shape=st.sampled_from([(), (1,), (33,), (4, 5, 7), (2 * half.PART + 3,)]),
)
def test_numbers_are_those_of_xla(
    level: int, words: tuple[int, int], seed: int, scale: float, shape: tuple[int, ...]
) -> None:
    value = jnp.asarray(np.random.default_rng(seed).normal(size=shape) * scale, np.float32)
    key = jnp.array(words, np.uint32)
    np.testing.assert_array_equal(bits(half.stochastic_by_kernel(value, key, level)), bits(by_xla(value, key)))


@pytest.mark.parametrize("level", LEVELS)
def test_special_numbers_are_those_of_xla(level: int) -> None:
    value, key = jnp.array(SPECIAL * 50, np.float32), jnp.array([5, 9], np.uint32)
    np.testing.assert_array_equal(half.stochastic_by_kernel(value, key, level), by_xla(value, key))


def test_a_batch_is_rounded_as_its_values_one_by_one() -> None:
    values = jax.random.normal(jax.random.key(1), (3, 40))
    keys = jnp.arange(6, dtype=np.uint32).reshape(3, 2)
    for axes, given_keys in (((0, 0), keys), ((0, None), keys[0])):
        found = jax.vmap(half.stochastic, axes)(values, given_keys)
        for at, row in enumerate(found):
            np.testing.assert_array_equal(row, by_xla(values[at], keys[at] if axes[1] == 0 else keys[0]))


def test_rounding_is_a_call_but_in_code_for_files_and_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    value, key = np.ones(9, np.float32), np.array([1, 2], np.uint32)

    def text(value: np.ndarray = value) -> str:
        return jit(lambda *given: half.stochastic(*given)).lower(value, key).as_text()

    assert library.ROUNDING in text()
    assert library.ROUNDING not in text(np.ones(0, np.float32))
    assert library.ROUNDING not in jit(portable.portable(half.stochastic)).lower(value, key).as_text()
    monkeypatch.setenv("IPU_TF_NATIVE", "0")
    assert library.ROUNDING not in text()


@pytest.mark.parametrize(
    ("keys", "words", "message"),
    [
        ((3,), [2, 8, 1], "keys are not of the shape"),
        ((2, 2), [2, 8, 1], "x is not of the shape"),
        ((2,), [2, 9, 1], "x is not of the shape"),
        ((2,), [2, 8, 0], "not positive"),
        ((2,), [2, 8], "another version"),
    ],
)
def test_damaged_calls_are_refused(keys: tuple[int, ...], words: list[int], message: str) -> None:
    call = jax.ffi.ffi_call(library.needed().target(library.ROUNDING), jax.ShapeDtypeStruct((8,), np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(
            call(np.zeros(8, np.float32), np.zeros(keys, np.uint32), shapes=np.array(words, np.int64))
        )
