"""Pooling and its gradients against XLA's own."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from ipu_tf.device.convolution.pooling import reduce_window, select_and_scatter
from tests.helpers.library_jit import jit

Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Shape, window, strides and padding; each window holds an element of the operand."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 8)) for _ in range(rank))
    size = tuple(draw(st.integers(1, min(3, n))) for n in shape)
    strides = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    padding = tuple((draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) for k in size)
    return shape, size, strides, padding


def first_maximum_gradient(operand: np.ndarray, source: np.ndarray, window: Window) -> np.ndarray:
    """The gradient of max pooling by its definition: the first largest element of a window, in row-major order."""
    _, size, strides, padding = window
    result = np.zeros_like(operand)
    for place in np.ndindex(source.shape):
        best: Any = None
        for offset in np.ndindex(size):
            at = tuple(p * s - low + o for p, s, (low, _), o in zip(place, strides, padding, offset, strict=True))
            inside = all(0 <= a < n for a, n in zip(at, operand.shape, strict=True))
            if inside and (best is None or operand[at] > operand[best]):
                best = at
        result[best] += source[place]
    return result


@settings(max_examples=30, deadline=None)
@given(window=windows(), seed=st.integers(0, 1000))
def test_gradient_of_max_pooling_with_ties(window: Window, seed: int) -> None:
    shape, size, strides, padding = window
    rng = np.random.default_rng(seed)
    operand = rng.integers(0, 3, shape).astype(np.float32)  # many ties
    pooled = jax.eval_shape(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, size, strides, padding), operand)
    source = rng.integers(1, 9, pooled.shape).astype(np.float32)
    arguments: dict[str, Any] = {"window_dimensions": size, "window_strides": strides, "padding": padding}
    gradient = jit(functools.partial(select_and_scatter, **arguments))
    result = gradient(operand, source, np.float32(0))
    np.testing.assert_array_equal(result, first_maximum_gradient(operand, source, window))


@settings(max_examples=30, deadline=None)
@given(
    window=windows(),
    reducer=st.sampled_from(["max", "min", "add"]),
    dtype=st.sampled_from(["float32", "int32"]),
)
def test_pooling(window: Window, reducer: Any, dtype: str) -> None:
    shape, size, strides, padding = window
    operand = jnp.asarray(np.random.default_rng(0).integers(-50, 50, shape), dtype)
    init = jnp.asarray({"max": -100, "min": 100, "add": 3}[reducer], dtype)
    combine = {"max": lax.max, "min": lax.min, "add": lax.add}[reducer]
    library = jit(lambda x, start: lax.reduce_window(x, start, combine, size, strides, padding))
    neutral = jnp.zeros((), dtype) if reducer == "add" else init  # XLA's has to be, to be used once only
    expected = library(operand, neutral) + (init if reducer == "add" else 0)
    arguments: dict[str, Any] = {"window_dimensions": size, "window_strides": strides, "padding": padding}
    result = jit(functools.partial(reduce_window, reducer=reducer, **arguments))(operand, init)
    np.testing.assert_array_equal(result, expected)


def test_dilated_windows_go_to_the_library() -> None:
    operand = jnp.arange(9.0)
    arguments: dict[str, Any] = {"window_dimensions": (2,), "window_strides": (1,), "padding": ((0, 0),)}
    result = reduce_window(operand, jnp.float32(0), "add", window_dilation=(3,), **arguments)
    np.testing.assert_array_equal(result, operand[:-3] + operand[3:])


def test_the_gradient_that_jax_itself_takes() -> None:
    operand = jax.random.normal(jax.random.key(0), (2, 9, 9, 3))
    window: dict[str, Any] = {
        "window_dimensions": (1, 3, 3, 1),
        "window_strides": (1, 2, 2, 1),
        "padding": ((0, 0), (1, 1), (1, 1), (0, 0)),
    }

    def pooled(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), window["padding"])

    source = jnp.cos(jit(pooled)(operand))
    (expected,) = jit(lambda x, g: jax.vjp(pooled, x)[1](g))(operand, source)
    result = select_and_scatter(operand, source, jnp.float32(0), **window)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_a_source_of_another_shape() -> None:
    with pytest.raises(ValueError, match="an element for each window"):
        select_and_scatter(
            jnp.ones(4),
            jnp.ones(3),
            jnp.float32(0),
            window_dimensions=(2,),
            window_strides=(2,),
            padding=((0, 0),),
        )


@pytest.mark.parametrize(("select", "expected"), [("GE", 0), ("GT", 2), ("LE", 1), ("LT", 3)])
def test_which_of_equal_elements_is_selected(select: Any, expected: int) -> None:
    operand = jnp.array([2.0, 1.0, 2.0, 1.0])
    window: dict[str, Any] = {"window_dimensions": (4,), "window_strides": (4,), "padding": ((0, 0),)}
    result = select_and_scatter(operand, jnp.array([5.0]), jnp.float32(1), select=select, **window)
    np.testing.assert_array_equal(result, np.where(np.arange(4) == expected, 6, 1))


def test_padding_is_never_selected() -> None:
    """Even where nothing is larger than what usually fills it; a window of padding alone has no gradient."""
    operand = jnp.full(2, -jnp.inf)
    window: dict[str, Any] = {"window_dimensions": (2,), "window_strides": (2,), "padding": ((3, 1),)}
    result = select_and_scatter(operand, jnp.array([1.0, 2.0, 4.0]), jnp.float32(0), **window)
    np.testing.assert_array_equal(result, [2.0, 4.0])


def test_averages_of_half_precision_are_summed_in_single() -> None:
    operand = jnp.full((1, 30), 100.1, jnp.float16).at[0, 0].set(0.1)
    result = reduce_window(
        operand,
        jnp.float16(0),
        "add",
        window_dimensions=(1, 30),
        window_strides=(1, 1),
        padding=((0, 0), (0, 0)),
    )
    assert result.dtype == jnp.float16
    np.testing.assert_array_equal(result, operand.astype(jnp.float32).sum(keepdims=True).astype(jnp.float16))


def test_long_windows_go_to_the_library() -> None:
    operand = jnp.arange(100.0)
    result = reduce_window(
        operand, jnp.float32(-jnp.inf), "max", window_dimensions=(50,), window_strides=(1,), padding=((0, 0),)
    )
    np.testing.assert_array_equal(result, np.arange(49.0, 100.0))


@pytest.mark.parametrize(("size", "stride", "by_xla"), [(40, 1, True), (300, 300, True), (40, 2, False)])
def test_gradients_of_long_windows(size: int, stride: int, by_xla: bool) -> None:
    """As a text network pools over all positions: the program does not grow with the window where they overlap."""
    rng = np.random.default_rng(0)
    operand = rng.integers(0, 3, (2, 1200, 3)).astype(np.float32)
    window: Window = (operand.shape, (1, size, 1), (1, stride, 1), ((0, 0),) * 3)
    source = rng.normal(size=(2, (1200 - size) // stride + 1, 3)).astype(np.float32)
    given: dict[str, Any] = dict(zip(("window_dimensions", "window_strides", "padding"), window[1:], strict=True))
    gradient = functools.partial(select_and_scatter, **given)
    result = jit(gradient)(operand, source, np.float32(0))
    expected = first_maximum_gradient(operand.astype(np.float64), source.astype(np.float64), window)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)
    assert ("select_and_scatter" in str(jax.make_jaxpr(gradient)(operand, source, np.float32(0)))) == by_xla
