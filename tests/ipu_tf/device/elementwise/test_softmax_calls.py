"""Softmax by the native kernel: against float64, and where programs call it."""

from __future__ import annotations

import hashlib
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
from ipu_tf.device.convolution.native import library
from ipu_tf.device.elementwise.evaluate import with_native_elementwise
from ipu_tf.device.elementwise.softmax_calls import softmax
from ipu_tf.lowering.jax.jaxpr_plans import planned
from tests.helpers.library_jit import jit
from tests.helpers.one_core import hashed_on_one_core, needs_affinity

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")

LEVELS = range(len(library.LEVELS))
SCORES = (4, 2, 40, 64)
LEAST_NORMAL = float(np.finfo(np.float32).tiny)


def normal(*shape: int, deviation: float = 1) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) * deviation).astype(np.float32)


def exact(x: np.ndarray, scale: float = 1) -> np.ndarray:
    """In float64, of what float32 makes of x and its scale, and of the distance from the largest."""
    scaled = x * np.float32(scale)
    exponentials = np.exp((scaled - scaled.max(-1, keepdims=True)).astype(np.float64))
    return exponentials / exponentials.sum(-1, keepdims=True)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 300)),
    deviation=st.sampled_from([0.0, 1.0, 30.0, 1e6]),
    scale=st.sampled_from([1.0, 0.125, -3.0]),
)
def test_it_is_the_softmax(shape: tuple[int, int], deviation: float, scale: float) -> None:
    """To a few roundings of float32; what is less than the least normal number may be 0."""
    x = normal(*shape, deviation=deviation)
    found = [np.asarray(softmax(jnp.asarray(x), scale, level)) for level in LEVELS]
    expected = exact(x, scale)
    assert np.all(abs(found[0] - expected) <= 4 * 2**-23 * expected + 2 * LEAST_NORMAL)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_long_rows() -> None:
    x = normal(3, 70001)
    np.testing.assert_allclose(softmax(jnp.asarray(x)), exact(x), rtol=4 * 2**-23)


def test_infinities_and_nan_are_those_of_jax() -> None:
    x = normal(6, 35)
    x[0, 3], x[1, 34], x[2, 0], x[3], x[4, 5:] = np.nan, np.nan, np.inf, -np.inf, -np.inf
    found, expected = np.asarray(softmax(jnp.asarray(x))), np.asarray(jit(jax.nn.softmax)(x))
    np.testing.assert_allclose(found, expected, rtol=4 * 2**-23)
    assert np.isnan(found[:4]).all() and np.isfinite(found[4:]).all() and not found[4, 5:].any()


def hashed() -> str:
    return hashlib.sha256(np.asarray(softmax(jnp.asarray(normal(300, 700)))).tobytes()).hexdigest()


@needs_affinity
def test_the_same_bits_on_one_core_as_on_all() -> None:
    assert hashed_on_one_core("tests.ipu_tf.device.elementwise.test_softmax_calls") == hashed()


@pytest.mark.parametrize(
    ("words", "shapes", "message"),
    [
        ([2, 4, 9, 0, 1], [(4, 8), (4, 8)], "x is not of the shape"),
        ([2, 4, 8, 0, 1], [(4, 8), (4, 7)], "the result is not of the shape"),
        ([2, 0, 8, 0, 1], [(4, 8), (4, 8)], "sizes are not positive"),
        ([2, 2**62, 8, 0, 1], [(4, 8), (4, 8)], "sizes are not positive"),
        ([2, 4, 8, 0], [(4, 8), (4, 8)], "of another version"),
    ],
)
def test_the_kernel_refuses_other_shapes(words: list[int], shapes: list[tuple[int, int]], message: str) -> None:
    result = jax.ShapeDtypeStruct(shapes[1], np.float32)
    call = jax.ffi.ffi_call(library.needed().target(library.SOFTMAX), result)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(call(jnp.ones(shapes[0], jnp.float32), shapes=np.array(words, np.int64)))


def steps(x: Any, total: Callable[[Any], Any] = lambda e: jnp.sum(e, -1, keepdims=True)) -> Any:
    """A softmax as TensorFlow has it."""
    exponentials = jnp.exp(x - jnp.max(x, -1, keepdims=True))
    return exponentials / total(exponentials)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "jax.nn": jax.nn.softmax,
    "TensorFlow's": steps,
    "scaled": lambda x: steps(x * 0.125),
    "scaled from the left": lambda x: steps(np.float32(0.125) * x),
    "scores that are returned too": lambda x: (x * 0.125, steps(x * 0.125)),
    "twice": lambda x: steps(steps(x)),
    "of longer rows": lambda x: steps(x.reshape(8, 20, 128)),
    "of longer rows, scaled": lambda x: steps((x * 0.125).reshape(160, 128)).reshape(SCORES),
    "in heads": lambda x: steps(x.reshape(8, 40, 64)).reshape(SCORES),
}


def text(function: Callable[..., Any], *arguments: Any) -> str:
    return jit(function).lower(*arguments).as_text()


def as_planned(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function with its sums by the native kernel, as programs have them."""
    return with_native_elementwise(planned(jax.make_jaxpr(function)(*arguments)))


@pytest.mark.parametrize("sums", ["by the kernel", "by XLA"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_call_it(name: str, sums: str) -> None:
    x, function = normal(*SCORES), PROGRAMS[name]
    program = as_planned(function, x) if sums == "by the kernel" else with_native_elementwise(function)
    lowered = text(program, x)
    assert lowered.count(library.needed().target(library.SOFTMAX)) == (2 if name == "twice" else 1)
    assert "stablehlo.exponential" not in lowered and "stablehlo.reduce" not in lowered
    found, expected = (jax.tree.leaves(jit(each)(x)) for each in (program, function))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


OTHERS: dict[str, Callable[[Any], Any]] = {
    "another axis": lambda x: jax.nn.softmax(x, 2),
    "two axes": lambda x: jax.nn.softmax(x, (2, 3)),
    "few elements": lambda x: jax.nn.softmax(x[0, 0]),
    "few columns": lambda x: jax.nn.softmax(x.reshape(-1, 4)),
    "another largest": lambda x: steps(x) * 0 + jnp.exp(x - jnp.max(x[::-1], -1, keepdims=True)),
    "a sum of something else": lambda x: steps(x, lambda e: jnp.sum(e * e, -1, keepdims=True)),
    "a sum over another axis": lambda x: steps(x, lambda e: jnp.sum(e, -2, keepdims=True)),
    "exponentials that are returned too": lambda x: (lambda e: (e, e / jnp.sum(e, -1, keepdims=True)))(
        jnp.exp(x - jnp.max(x, -1, keepdims=True))
    ),
    "largest of longer rows": lambda x: (lambda e: e / jnp.sum(e, -1, keepdims=True))(
        jnp.exp(x.reshape(160, 128) - jnp.max(x.reshape(160, 128), -1, keepdims=True)).reshape(SCORES)
    ),
    "a sum of longer rows": lambda x: (lambda e: e.reshape(160, 128) / jnp.sum(e.reshape(160, 128), -1, keepdims=True))(
        jnp.exp(x - jnp.max(x, -1, keepdims=True))
    ),
    "repeated distances": lambda x: (lambda e: e / jnp.sum(e, -1, keepdims=True))(
        jnp.exp(jnp.broadcast_to(x[:1] - jnp.max(x[:1], -1, keepdims=True), SCORES))
    ),
    "no distance from the largest": lambda x: jnp.exp(x) / jnp.sum(jnp.exp(x), -1, keepdims=True),
    "float16": lambda x: steps(x.astype(jnp.float16)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_quotients_stay_as_they_are(name: str) -> None:
    x, function = normal(*SCORES), OTHERS[name]
    if name != "another largest":
        assert library.SOFTMAX not in text(with_native_elementwise(function), x)
    found, expected = (jax.tree.leaves(jit(each)(x)) for each in (with_native_elementwise(function), function))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


def test_code_for_files_has_no_such_call() -> None:
    program = portable.portable(with_native_elementwise(jax.nn.softmax))
    assert library.SOFTMAX not in text(program, normal(*SCORES))


def test_gradients_and_loops_have_it_too() -> None:
    x = normal(*SCORES)

    def loss(x: Any) -> Any:
        return jnp.sum(steps(x) ** 2)

    def descent(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, at: at - 0.1 * jax.grad(loss)(at), x)

    program = with_native_elementwise(descent)
    np.testing.assert_allclose(jit(program)(x), jit(descent)(x), rtol=1e-5, atol=1e-6)
