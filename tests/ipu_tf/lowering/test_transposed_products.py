"""Products of one vector with a transposed matrix take the matrix as it is, on both front ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax.extend import core

from ipu_tf.lowering.jax.transposed_products import without_transpositions
from tests.helpers.lowering_parity import assert_same, lowered, traced_module

RNG = np.random.default_rng(0)
VECTOR, VECTORS = (RNG.normal(size=(rows, 7)).astype(np.float32) for rows in (1, 3))
TABLE = RNG.normal(size=(5, 7)).astype(np.float32)
BLOCKS = RNG.normal(size=(2, 5, 7)).astype(np.float32)


def _equations(function: core.ClosedJaxpr) -> Iterator[Any]:
    """All equations, those of loops and calls too."""
    for eqn in function.jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            if isinstance(value, core.ClosedJaxpr):
                yield from _equations(value)


def _takes_transpositions(function: core.ClosedJaxpr) -> bool:
    """Whether a product takes an array that was transposed."""
    made = {eqn.outvars[0] for eqn in _equations(function) if eqn.primitive.name == "transpose"}
    products = [eqn for eqn in _equations(function) if eqn.primitive.name == "dot_general"]
    assert products
    taken = [each for eqn in products for each in eqn.invars if not isinstance(each, core.Literal)]
    return any(each in made for each in taken)


def jax_loop(x: jax.Array, table: jax.Array) -> Any:
    def body(state: Any) -> Any:
        at, x = state
        return at + 1, x + jnp.tanh(jnp.matmul(x, jnp.transpose(table))).sum()

    return jax.lax.while_loop(lambda state: state[0] < 3, body, (0, x))[1]


def tensorflow_loop(x: tf.Tensor, table: tf.Tensor) -> Any:
    def body(at: tf.Tensor, x: tf.Tensor) -> Any:
        return at + 1, x + tf.reduce_sum(tf.tanh(tf.tensordot(x, tf.transpose(table), 1)))

    return tf.while_loop(lambda at, x: at < 3, body, (0, x))[1]


CASES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], bool]] = {
    "in a loop": (jax_loop, (VECTOR, TABLE), False),
    "in a call": (jax.jit(lambda x, t: jnp.matmul(x, t.T)), (VECTOR, TABLE), False),
    "on the left": (lambda x, t: jnp.matmul(t.T, x[0, :5]), (VECTOR, TABLE), False),
    "two axes": (
        lambda x, t: jnp.tensordot(x[0, :5], t.transpose(1, 0, 2), 1),
        (VECTOR, BLOCKS),
        False,
    ),
    "other axes first": (lambda x, t: jnp.tensordot(x[0], t.transpose(2, 1, 0), 1), (VECTOR, BLOCKS), True),
    "several vectors": (lambda x, t: jnp.matmul(x, t.T), (VECTORS, TABLE), True),
    "in batches": (lambda x, t: jnp.einsum("bi,bio->bo", x[:, :7], t.transpose(0, 2, 1)), (VECTORS[:2], BLOCKS), True),
}
"""A function of JAX, its arguments, and whether it keeps its transposition."""


@pytest.mark.parametrize("name", CASES)
def test_steps_of_jax(name: str) -> None:
    function, operands, kept = CASES[name]
    traced = jax.make_jaxpr(function)(*operands)
    assert _takes_transpositions(traced)
    rewritten = without_transpositions(traced)
    assert _takes_transpositions(rewritten) == kept
    [result] = core.jaxpr_as_fun(rewritten)(*operands)
    np.testing.assert_allclose(result, function(*operands), rtol=1e-5, atol=1e-6)


def test_what_has_no_such_product_is_unchanged() -> None:
    traced = jax.make_jaxpr(lambda x, t: jnp.matmul(x, t) * 2)(VECTOR, TABLE.T)
    assert without_transpositions(traced).jaxpr is traced.jaxpr


@pytest.mark.parametrize(("x", "kept"), [(VECTOR, False), (VECTORS, True)], ids=["a vector", "several vectors"])
def test_functions_of_tensorflow(x: np.ndarray, kept: bool) -> None:
    operands = tf.constant(x), tf.constant(TABLE)
    module = lowered(tensorflow_loop, *operands)
    assert _takes_transpositions(traced_module(module, x, TABLE)) == kept
    assert_same(tensorflow_loop, *operands, ops=("stablehlo.transpose",))
