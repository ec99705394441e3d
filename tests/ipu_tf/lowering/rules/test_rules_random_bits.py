"""Random bits from a given state are TensorFlow's, bit for bit."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_tf.device.numerics.philox import philox_bits
from tests.helpers.lowering_parity import Case, TextCase, lowered, traced_module

SEED = np.array([1, 2**31 - 7], np.int32)
X = np.random.default_rng(0).normal(size=(6, 7)).astype(np.float32)
BITS = ("stablehlo.rng_bit_generator",)


def _philox(fn: Any) -> Any:
    """CPU kernels draw the same bits, but XLA makes other fractions of them: hence `xla=True`."""
    return lambda seed: fn((7, 3), seed, alg="philox")


CASES = [
    Case(f"bits of {name}", lambda seed, name=name: _full(seed, name), (SEED,), BITS, 0)
    for name in ("int32", "uint32", "int64", "uint64")
]
CASES += [
    Case("uniform", _philox(tf.random.stateless_uniform), (SEED,), BITS, 0, xla=True),
    Case("normal", _philox(tf.random.stateless_normal), (SEED,), BITS, 1e-4, xla=True),
    Case("truncated normal", _philox(tf.random.stateless_truncated_normal), (SEED,), BITS, 1e-4, xla=True),
    Case("default algorithm", lambda seed: tf.random.stateless_uniform((9,), seed), (SEED,), BITS, 0, xla=True),
    Case("threefry", lambda s: tf.random.stateless_uniform((9,), s, alg="threefry"), (SEED,), BITS, 0, xla=True),
    Case("dropout", lambda x, s: tf.nn.experimental.stateless_dropout(x, 0.4, s), (X, SEED), BITS, xla=True),
    Case("split", lambda seed: tf.random.split(seed, 3), (SEED,), BITS, 0, xla=True),
    Case("categorical", lambda x, s: tf.random.stateless_categorical(x, 5, s), (X, SEED), BITS, 0, xla=True),
]
CASES += [
    Case(
        f"uniform {name}",
        lambda seed, name=name: tf.random.stateless_uniform((5, 3), seed, dtype=name, alg="philox"),
        (SEED,),
        BITS,
        0,
        xla=True,
    )
    for name in ("float64", "float16", "bfloat16")
]
CASES += [
    Case(
        "integers below a bound",
        lambda seed: tf.random.stateless_uniform((50,), seed, 3, 10, tf.int32, alg="philox"),
        (SEED,),
        BITS,
        0,
    )
]


def _full(seed: Any, name: str) -> Any:
    return tf.random.stateless_uniform((5, 3), seed, None, None, name, alg="philox")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_tensorflow(case: Case) -> None:
    case.check()


def _reference(state: list[int], count: int, bits: int) -> tuple[list[int], list[int]]:
    """Philox4x32-10 in Python's integers: the state after, and the elements."""
    key, low, high = [*state, 0][:3]
    per_block = 128 // max(bits, 32)
    blocks = -(-count // per_block)
    counter, words = low + (high << 64), []
    for block in range(blocks):
        words += _reference_block(key, (counter + block) % 2**128)
    joined = words if bits <= 32 else [a + (b << 32) for a, b in zip(words[::2], words[1::2], strict=True)]
    after = (counter + blocks) % 2**128
    return [key, after % 2**64, after >> 64][: len(state)], [word % 2**bits for word in joined[:count]]


def _reference_block(key: int, counter: int) -> list[int]:
    k = [key % 2**32, key >> 32]
    c = [counter >> shift & 0xFFFFFFFF for shift in (0, 32, 64, 96)]
    for _ in range(10):
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [second >> 32 ^ c[1] ^ k[0], second % 2**32, first >> 32 ^ c[3] ^ k[1], first % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


WORD = st.integers(0, 2**64 - 1) | st.integers(2**64 - 3, 2**64 - 1)


@settings(max_examples=40, deadline=None)
@given(
    state=st.lists(WORD, min_size=2, max_size=3),
    shape=st.sampled_from([(), (0,), (1,), (5,), (2, 3), (3, 3, 1)]),
    name=st.sampled_from(["uint8", "uint16", "uint32", "uint64"]),
)
def test_philox_bits(state: list[int], shape: tuple[int, ...], name: str) -> None:
    dtype = np.dtype(name)
    with jax.enable_x64(True):
        after, bits = philox_bits(np.array(state, np.uint64), shape, dtype)
    expected_after, expected = _reference(state, math.prod(shape), dtype.itemsize * 8)
    assert (bits.shape, bits.dtype, after.dtype) == (shape, dtype, np.dtype(np.uint64))
    assert np.asarray(after).tolist() == expected_after
    assert np.asarray(bits).ravel().tolist() == expected


def test_the_state_moves_on_from_call_to_call() -> None:
    """Two draws of four and one of eight are the same bits."""
    with jax.enable_x64(True):
        first, head = philox_bits(np.array([3, 2**64 - 1, 5], np.uint64), (4,), np.dtype(np.uint32))
        second, tail = philox_bits(first, (4,), np.dtype(np.uint32))
        at_once, whole = philox_bits(np.array([3, 2**64 - 1, 5], np.uint64), (8,), np.dtype(np.uint32))
    np.testing.assert_array_equal(np.concatenate([head, tail]), whole)
    np.testing.assert_array_equal(second, at_once)


def test_many_states_at_once() -> None:
    states = np.arange(12, dtype=np.uint64).reshape(4, 3)
    with jax.enable_x64(True):
        many = jax.vmap(lambda state: philox_bits(state, (5,), np.dtype(np.uint32))[1])(states)
        single = [philox_bits(state, (5,), np.dtype(np.uint32))[1] for state in states]
    np.testing.assert_array_equal(many, np.stack(single))


def test_an_algorithm_of_the_platform_is_refused() -> None:
    module = TextCase(
        "default",
        "(%s: tensor<2xui64>) -> tensor<4xui32>",
        "%t, %b = stablehlo.rng_bit_generator %s, algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, "
        "tensor<4xui32>)\nreturn %b : tensor<4xui32>",
        (),
        (),
        BITS,
    ).parse()
    with pytest.raises(NotImplementedError, match="DEFAULT"):
        traced_module(module, np.zeros(2, np.uint64))


def test_a_mask_takes_no_gather() -> None:
    """Shuffles keep XLA from vectorising the generator, at ten times the cost."""
    module = lowered(CASES[0].fn, tf.constant(SEED))
    text = str(traced_module(module, SEED))
    assert "gather" not in text and "transpose" not in text
