"""Layer normalisation by the native kernel: against float64, and where programs call it."""

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
from ipu_tf.device.elementwise.layer_normalization_calls import layer_normalization
from ipu_tf.lowering.jax.jaxpr_plans import planned
from tests.helpers.library_jit import jit
from tests.helpers.one_core import hashed_on_one_core, needs_affinity

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")

LEVELS = range(len(library.LEVELS))
TOKENS = (8, 40, 64)
EPSILON = 1e-3


def normal(*shape: int, mean: float = 0, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) + mean).astype(np.float32)


def exact(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """In float64."""
    wide = x.astype(np.float64)
    return (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + EPSILON) * gamma + beta


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 40), st.integers(1, 3000)),
    mean=st.sampled_from([0.0, 1.0, -300.0]),
)
def test_it_is_the_normalisation(shape: tuple[int, int], mean: float) -> None:
    """To the rounding of what it is computed of: the mean times the scale, of which beta is left."""
    x, gamma, beta = normal(*shape, mean=mean), normal(shape[1], seed=1), normal(shape[1], seed=2)
    given_x, given_gamma, given_beta = map(jnp.asarray, (x, gamma, beta))
    found = [layer_normalization(given_x, given_gamma, given_beta, EPSILON, level) for level in LEVELS]
    result, sums, squares = map(np.asarray, found[0])
    scale = abs(gamma) / np.sqrt(x.astype(np.float64).var(-1, keepdims=True) + EPSILON)
    bound = 8 * 2**-23 * ((abs(x) + abs(mean) + 1) * scale + abs(beta) + 1)
    assert np.all(abs(result - exact(x, gamma, beta)) <= bound)
    np.testing.assert_allclose(sums, x.astype(np.float64).sum(-1), rtol=1e-6, atol=1e-5 * shape[1])
    np.testing.assert_allclose(squares, x.astype(np.float64).var(-1) * shape[1], rtol=1e-5, atol=1e-6)
    for other in found[1:]:
        for one, same in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(one, same)


def test_a_row_with_a_nan_or_an_infinity_is_nan() -> None:
    x, one = normal(4, 50), jnp.ones(50)
    x[1, 3], x[2, 49] = np.nan, np.inf
    result, _, _ = layer_normalization(jnp.asarray(x), one, one, EPSILON)
    np.testing.assert_array_equal(np.isnan(result).any(1), [False, True, True, False])
    assert np.isnan(result[1:3]).all()


def hashed() -> str:
    x, gamma, beta = (jnp.asarray(normal(*shape)) for shape in ((300, 700), (700,), (700,)))
    parts = layer_normalization(x, gamma, beta, EPSILON)
    return hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in parts)).hexdigest()


@needs_affinity
def test_the_same_bits_on_one_core_as_on_all() -> None:
    assert hashed_on_one_core("tests.ipu_tf.device.elementwise.test_layer_normalization_calls") == hashed()


@pytest.mark.parametrize(
    ("words", "shapes", "message"),
    [
        ([2, 4, 9, 0, 1], [(8,), (4, 8), (4,)], "x is not of the shape"),
        ([2, 4, 8, 0, 1], [(7,), (4, 8), (4,)], "gamma or beta is not of the shape"),
        ([2, 4, 8, 0, 1], [(8,), (4, 7), (4,)], "the result is not of the shape"),
        ([2, 4, 8, 0, 1], [(8,), (4, 8), (3,)], "sums are not of the shape"),
        ([2, 0, 8, 0, 1], [(8,), (4, 8), (4,)], "sizes are not positive"),
        ([2, 4, 8, 0, 0], [(8,), (4, 8), (4,)], "sizes are not positive"),
        ([2, 4, 8, 0], [(8,), (4, 8), (4,)], "of another version"),
    ],
)
def test_the_kernel_refuses_other_shapes(words: list[int], shapes: list[tuple[int, ...]], message: str) -> None:
    row, result, sums = shapes
    results = [jax.ShapeDtypeStruct(shape, np.float32) for shape in (result, sums, sums)]
    call = jax.ffi.ffi_call(library.needed().target(library.LAYER_NORMALIZATION), results)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(call(jnp.ones((4, 8)), jnp.ones(row), jnp.ones(row), shapes=np.array(words, np.int64)))


def steps(x: Any, gamma: Any, beta: Any, columns: float = TOKENS[-1], center: Any = None) -> Any:
    """A layer normalisation as Keras has it on TensorFlow."""
    mean = jnp.sum(x, -1, keepdims=True) / columns
    variance = jnp.sum((x - (mean if center is None else center)) ** 2, -1, keepdims=True) / columns
    scale = lax.rsqrt(variance + EPSILON) * gamma
    return x * scale + (-mean * scale + beta)


def turned_steps(x: Any, gamma: Any, beta: Any, of_mean: Callable[[Any], Any] | None = None) -> Any:
    """The same with operands in another order, and with a gamma that depends on the mean, if wanted."""
    mean = jnp.sum(x, -1, keepdims=True) / TOKENS[-1]
    apart = x - mean
    variance = jnp.sum(apart * apart, -1, keepdims=True) / TOKENS[-1]
    scale = (gamma if of_mean is None else gamma * of_mean(mean)) * lax.rsqrt(EPSILON + variance)
    return (beta + scale * -mean) + scale * x


def finished(x: Any, mean: Any, squares: Any, gamma: Any, beta: Any) -> Any:
    """A layer normalisation of sums that others read too."""
    scale = lax.rsqrt(squares / TOKENS[-1] + EPSILON) * gamma
    return x * scale + (-mean * scale + beta)


def of_the_same_sums(x: Any, gamma: Any, beta: Any) -> Any:
    mean = jnp.sum(x, -1, keepdims=True) / TOKENS[-1]
    squares = jnp.sum((x - mean) ** 2, -1, keepdims=True)
    return finished(x, mean, squares, gamma, beta), jnp.sin(finished(x, mean, squares, beta, gamma))


def of_squares(x: Any, gamma: Any, beta: Any) -> Any:
    """Squares are what another one is computed of."""
    mean = jnp.sum(x, -1, keepdims=True) / TOKENS[-1]
    apart = (x - mean) ** 2
    squares = jnp.sum(apart, -1, keepdims=True)
    variance = squares / TOKENS[-1]
    of_apart = jnp.sum((apart - variance) ** 2, -1, keepdims=True)
    return finished(x, mean, squares, gamma, beta) + finished(apart, variance, of_apart, gamma, beta)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "Keras's": steps,
    "of flat rows": lambda x, g, b: steps(x.reshape(-1, TOKENS[-1]), g, b).reshape(TOKENS),
    "twice": lambda x, g, b: steps(steps(x, g, b), b, g),
    "sums the other way round": turned_steps,
    "statistics that are returned too": lambda x, g, b: (
        jnp.mean(x, -1),
        jnp.var(x, -1) * 2.0,
        steps(x, g, b),
    ),
    "two of the same sums": of_the_same_sums,
    "one of the squares of another": of_squares,
    "in float16 before": lambda x, g, b: steps(x.astype(jnp.float16).astype(jnp.float32), g, b),
}


def text(function: Callable[..., Any], *arguments: Any) -> str:
    return jit(function).lower(*arguments).as_text()


def as_planned(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function with its sums by the native kernel, as programs have them."""
    return with_native_elementwise(planned(jax.make_jaxpr(function)(*arguments)))


def operands() -> tuple[np.ndarray, ...]:
    return normal(*TOKENS), normal(TOKENS[-1], seed=1), normal(TOKENS[-1], seed=2)


@pytest.mark.parametrize("sums", ["by the kernel", "by XLA"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_call_it(name: str, sums: str) -> None:
    function, given_arrays = PROGRAMS[name], operands()
    program = as_planned(function, *given_arrays) if sums == "by the kernel" else with_native_elementwise(function)
    lowered = text(program, *given_arrays)
    assert lowered.count(library.needed().target(library.LAYER_NORMALIZATION)) == (2 if name == "twice" else 1)
    found, expected = (jax.tree.leaves(jit(each)(*given_arrays)) for each in (program, function))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


OTHERS: dict[str, Callable[..., Any]] = {
    "few elements": lambda x, g, b: steps(x[0], g, b),
    "another axis": lambda x, g, b: steps(x.transpose(0, 2, 1), g[0], b[0], 40.0).transpose(0, 2, 1),
    "another number of columns": lambda x, g, b: steps(x, g, b, 63.0),
    "distances from something else": lambda x, g, b: steps(x, g, b, center=b[0]),
    "distances from another mean": lambda x, g, b: steps(x, g, b, center=jnp.sum(x, -1, keepdims=True) / 63.0),
    "a number for gamma": lambda x, g, b: steps(x, g[0], b),
    "a gamma of each element": lambda x, g, b: steps(x, x, b),
    "another array": lambda x, g, b: steps(x, g, b) * 0 + x[::-1] * (lax.rsqrt(jnp.var(x, -1, keepdims=True)) * g),
    "float16": lambda x, g, b: steps(*(each.astype(jnp.float16) for each in (x, g, b))).astype(jnp.float32),
    "a gamma of the mean": lambda x, g, b: turned_steps(x, g, b, jnp.sum),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_stay_as_they_are(name: str) -> None:
    function, given_arrays = OTHERS[name], operands()
    if name != "another array":
        assert library.LAYER_NORMALIZATION not in text(as_planned(function, *given_arrays), *given_arrays)
    [found] = jit(as_planned(function, *given_arrays))(*given_arrays)
    tolerance = 1e-2 if name == "float16" else 1e-5
    np.testing.assert_allclose(found, jit(function)(*given_arrays), rtol=tolerance, atol=tolerance)


def test_code_for_files_has_no_such_call() -> None:
    program = portable.portable(with_native_elementwise(steps))
    assert library.LAYER_NORMALIZATION not in text(program, *operands())


def test_gradients_and_loops_have_it_too() -> None:
    x, gamma, beta = operands()

    def loss(x: Any) -> Any:
        return jnp.sum(jnp.sin(steps(x, gamma, beta)) ** 2)

    def descent(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, at: at - 0.1 * jax.grad(loss)(at), x)

    program = with_native_elementwise(descent)
    assert library.LAYER_NORMALIZATION in text(program, x)
    np.testing.assert_allclose(jit(program)(x), jit(descent)(x), rtol=1e-4, atol=1e-5)
