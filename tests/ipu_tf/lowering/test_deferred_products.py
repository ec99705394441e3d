"""Sums of products over a loop's iterations: the same numbers after the loop, and only where nothing else sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.extend.core
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_tf.lowering.importer.rules import deferred_products
from tests.helpers.device_counts import device_work
from tests.helpers.lowering_parity import assert_same, lowered, traced_module
from tests.helpers.some_ipus import ipus

RNG = np.random.default_rng(0)
TRIPS = 6
X, G = (tf.constant(RNG.normal(size=(TRIPS, 4, size)).astype(np.float32)) for size in (7, 9))
WEIGHTS = RNG.normal(size=(7, 7)).astype(np.float32)
Loop = Callable[[tf.Tensor, tf.Tensor], Any]


def start() -> tf.Tensor:
    return tf.zeros([7, 9])


def step(i: tf.Tensor, total: tf.Tensor, x: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
    return total + tf.matmul(tf.sin(x[i]), g[i], transpose_a=True)


def counted(x: tf.Tensor, g: tf.Tensor, first: int = 0, limit: int = TRIPS, by: int = 1) -> Any:
    return tf.while_loop(lambda i, t: i < limit, lambda i, t: (i + by, step(i, t, x, g)), (first, start()))


def two_limits(x: tf.Tensor, g: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda i, j, t: tf.logical_and(i < TRIPS, j < 5),
        lambda i, j, t: (i + 1, j + 2, step(i, t, x, g)),
        (0, 0, start()),
    )


def as_long_as_another(x: tf.Tensor, g: tf.Tensor) -> Any:
    """The loop that computes the gradients of another one runs as often as that has run."""
    count, y = tf.while_loop(lambda i, y: i < TRIPS, lambda i, y: (i + 1, y * 1.5), (0, x))
    return tf.while_loop(lambda i, n, t: i < n, lambda i, n, t: (i + 1, n, step(i, t, y, g)), (0, count, start()))


def products_of_rows(x: tf.Tensor, g: tf.Tensor) -> Any:
    """Two sums with an operand in common; one contracts columns."""

    def body(i: tf.Tensor, first: tf.Tensor, second: tf.Tensor) -> Any:
        left, right = tf.exp(x[i]), g[i]
        wide = tf.transpose(left)
        return i + 1, tf.matmul(left, right, transpose_a=True) + first, second + tf.matmul(wide, right)

    return tf.while_loop(lambda i, *_: i < TRIPS, body, (0, start(), start() + 1.0))


def gradient(x: tf.Tensor, g: tf.Tensor) -> Any:
    """Of a recurrent layer's weights."""
    weights = tf.constant(WEIGHTS)
    with tf.GradientTape() as tape:
        tape.watch(weights)
        cell = lambda i, h: (i + 1, tf.tanh(h @ weights + x[i]))  # noqa: E731
        _, state = tf.while_loop(lambda i, h: i < TRIPS, cell, (0, tf.ones([4, 7])), maximum_iterations=TRIPS)
        loss = tf.reduce_sum(state)
    return tape.gradient(loss, weights)


def seen_in_the_loop(x: tf.Tensor, g: tf.Tensor) -> Any:
    def body(i: tf.Tensor, total: tf.Tensor, norm: tf.Tensor) -> Any:
        return i + 1, step(i, total, x, g), norm + tf.reduce_sum(total)

    return tf.while_loop(lambda i, *_: i < TRIPS, body, (0, start(), 0.0))


def until_the_data_says_so(x: tf.Tensor, g: tf.Tensor) -> Any:
    return tf.while_loop(
        lambda i, t: tf.logical_and(i < TRIPS, tf.reduce_max(t) < 2.0),
        lambda i, t: (i + 1, step(i, t, x, g)),
        (0, start()),
    )


def decayed(x: tf.Tensor, g: tf.Tensor) -> Any:
    return tf.while_loop(lambda i, t: i < TRIPS, lambda i, t: (i + 1, step(i, 0.9 * t, x, g)), (0, start()))


def counted_by_an_argument(x: tf.Tensor, g: tf.Tensor) -> Any:
    limit = tf.cast(tf.reduce_sum(tf.ones_like(x[:4, 0, 0])) + 0 * x[0, 0, 0], tf.int32)
    return tf.while_loop(lambda i, n, t: i < n, lambda i, n, t: (i + 1, n, step(i, t, x, g)), (0, limit, start()))


DEFERRED: dict[str, Loop] = {
    "counted": counted,
    "two limits": two_limits,
    "as long as another": as_long_as_another,
    "products of rows": products_of_rows,
    "gradient": gradient,
}
NOT_DEFERRED: dict[str, Loop] = {
    "once": lambda x, g: counted(x, g, limit=1),
    "seen in the loop": seen_in_the_loop,
    "until the data says so": until_the_data_says_so,
    "decayed": decayed,
    "counted by an argument": counted_by_an_argument,
    "of small matrices": lambda x, g: tf.while_loop(
        lambda i, t: i < TRIPS,
        lambda i, t: (i + 1, t + tf.matmul(x[i], g[i], transpose_a=True)[:1, :1]),
        (0, tf.zeros([1, 1])),
    ),
}


def products_in_loops(fn: Loop, *args: tf.Tensor) -> list[tuple[int, ...]]:
    """Shapes of the matrix products in the loops of a function, as JAX gets it, dead ones left out."""
    jaxpr = traced_module(lowered(fn, *args), *args).jaxpr
    found: list[tuple[int, ...]] = []

    def look(jaxpr: jax.extend.core.Jaxpr, inside: bool) -> None:
        live = {id(v) for v in jaxpr.outvars}
        for equation in reversed(jaxpr.eqns):
            if not any(id(v) in live for v in equation.outvars):
                continue
            live.update(id(v) for v in equation.invars)
            if inside and equation.primitive.name == "dot_general":
                found.append(getattr(equation.outvars[0].aval, "shape", ()))
            for value in equation.params.values():
                if hasattr(value, "jaxpr"):
                    look(value.jaxpr, inside or equation.primitive.name == "while")

    look(jaxpr, False)
    return found


@pytest.mark.parametrize("name", DEFERRED)
def test_a_sum_that_nothing_else_sees_is_one_product_after_the_loop(name: str) -> None:
    assert_same(DEFERRED[name], X, G)
    assert [shape for shape in products_in_loops(DEFERRED[name], X, G) if shape in ((7, 9), (7, 7))] == []


@pytest.mark.parametrize("name", NOT_DEFERRED)
def test_others_stay(name: str) -> None:
    assert_same(NOT_DEFERRED[name], X, G)
    assert products_in_loops(NOT_DEFERRED[name], X, G)


def test_operands_that_are_large_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    size = TRIPS * 4 * (7 + 9) * 4
    monkeypatch.setattr(deferred_products, "MOST_BYTES", size - 1)
    assert products_in_loops(counted, X, G)
    monkeypatch.setattr(deferred_products, "MOST_BYTES", size)
    assert not products_in_loops(counted, X, G)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(first=st.integers(0, 3), limit=st.integers(0, TRIPS), by=st.integers(1, 3))
def test_any_counter(first: int, limit: int, by: int) -> None:
    assert_same(lambda x, g: counted(x, g, first, limit, by), X, G)


def test_a_check_of_the_total_in_the_condition_sees_each_iterations() -> None:
    def condition(i: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(tf.reduce_max(tf.abs(total)), 1.0, "too large")
        return i < TRIPS

    def program(x: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
        return tf.while_loop(condition, lambda i, t: (i + 1, step(i, t, x, g)), (0, start()))[1]

    with ipus(1) as strategy:
        with pytest.raises(tf.errors.InvalidArgumentError, match="too large"):
            strategy.run(tf.function(program, autograph=False), [X, G])
        with device_work() as work:
            strategy.run(tf.function(program, autograph=False), [X * 1e-3, G])
        assert work.counts.executions == 1
