"""Products of matrices by the native kernel: against float64, and where programs call it."""

from __future__ import annotations

import dataclasses
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
from ipu_tf.device.convolution.native import library, matrix_product
from ipu_tf.device.convolution.native.matrix_product import MatrixProduct
from ipu_tf.device.convolution.native.product_form import form_of
from ipu_tf.device.elementwise.evaluate import with_native_elementwise
from tests.helpers.exact_sums import small_integers
from tests.helpers.library_jit import jit
from tests.helpers.one_core import hashed_on_one_core, needs_affinity

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")

LEVELS = range(len(library.LEVELS))
ORDERS = {
    "as they are multiplied": ((0, 1, 2, 3), (0, 1, 2, 3)),
    "queries and keys": ((0, 2, 1, 3), (0, 2, 3, 1)),
    "weights, transposed, and values": ((0, 1, 3, 2), (0, 2, 1, 3)),
    "any": ((3, 1, 2, 0), (3, 0, 2, 1)),
}
"""How both operands lie in memory: where their axes are, in the order of canonical ones, two of the batch's first."""


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape, np.float32) for shape in shapes]


def text(function: Callable[..., Any], *arguments: Any) -> str:
    return jit(function).lower(*arguments).as_text()


def calls_it(function: Callable[..., Any], *arguments: Any) -> bool:
    return library.needed().target(library.MATRIX_PRODUCT) in text(function, *arguments)


RESULTS = ((0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3), (0, 3, 1, 2), (3, 0, 1, 2), (2, 1, 0, 3))
"""Permutations of a result, two of the batch's axes first, after which rows or columns lie one after the other."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("order", ORDERS)
@settings(max_examples=10, deadline=None)
@given(
    batch=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    rows=st.integers(1, 40),
    inner=st.integers(1, 150),
    columns=st.integers(1, 100),
    permuted=st.sampled_from(RESULTS),
)
def test_it_is_the_product(
    level: int,
    order: str,
    batch: tuple[int, int],
    rows: int,
    inner: int,
    columns: int,
    permuted: tuple[int, ...],
) -> None:
    canonical = arrays((*batch, rows, inner), (*batch, inner, columns))
    left, right = ORDERS[order]
    numbers = (((left[3],), (right[2],)), (left[:2], right[:2]))
    operands = tuple(
        jnp.asarray(np.ascontiguousarray(np.transpose(each, np.argsort(axes))))
        for each, axes in zip(canonical, (left, right), strict=True)
    )
    traced = jax.make_jaxpr(lambda x, y: lax.dot_general(x, y, numbers))(*operands)
    form = form_of(traced.eqns[0], permuted)
    assert form is not None
    x, y = (np.asarray(each, np.float64) for each in canonical)
    wanted, bound = (np.transpose(each, permuted) for each in (x @ y, 1e-6 * (abs(x) @ abs(y)) + 1e-30))
    x_given, y_given = operands[::-1] if form.turned else operands
    found = matrix_product.matrix_product(x_given, y_given, form, level, shape=wanted.shape)
    assert np.all(abs(found - wanted) <= bound)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("least_zero", [False, True])
@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 40),
    inner=st.integers(1, 600),
    columns=st.integers(1, 300),
    added=st.sets(st.sampled_from(["bias", "addend"])),
)
def test_what_is_added_to_the_whole_sum(
    level: int, least_zero: bool, rows: int, inner: int, columns: int, added: set[str]
) -> None:
    """And what is negative is 0 then, not before."""
    x, y, bias, addend = (
        small_integers(*shape) for shape in ((rows, inner), (inner, columns), (columns,), (rows, columns))
    )
    form = MatrixProduct.of(rows, inner, columns)
    found = matrix_product.matrix_product(
        jnp.asarray(x),
        jnp.asarray(y),
        form,
        level,
        bias=jnp.asarray(bias) if "bias" in added else None,
        addend=jnp.asarray(addend) if "addend" in added else None,
        least_zero=least_zero,
    )
    wanted = x @ y + bias * ("bias" in added) + addend * ("addend" in added)
    np.testing.assert_array_equal(found, np.maximum(wanted, 0) if least_zero else wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_an_addend_lies_as_the_result_does(level: int) -> None:
    """Turned, for example."""
    x, y, addend = (small_integers(*shape) for shape in ((2, 30, 40), (2, 40, 70), (30, 2, 70)))
    form = MatrixProduct((2,), 30, 40, 70, (1200,), (2800,), (40, 1), (70, 1), result=(70, 140))
    given_x, given_y, given_addend = map(jnp.asarray, (x, y, addend))
    found = matrix_product.matrix_product(given_x, given_y, form, level, addend=given_addend)
    np.testing.assert_array_equal(np.reshape(found, (30, 2, 70)), np.swapaxes(x @ y, 0, 1) + addend)


def test_what_is_no_number_stays_so_where_negative_results_are_0() -> None:
    x = jnp.array([[np.nan, 1.0], [-np.inf, 1.0], [np.inf, 1.0]], jnp.float32)
    y = jnp.ones((2, 40), jnp.float32)
    found = matrix_product.matrix_product(x, y, MatrixProduct.of(3, 2, 40), bias=y[0], least_zero=True)
    np.testing.assert_array_equal(found[:, 0], [np.nan, 0, np.inf])


SIZES = {"rows": st.integers(1, 230), "inner": st.integers(200, 800), "columns": st.integers(60, 600)}
"""What is packed is at most 96 rows, 256 numbers of the inner axis and 256 columns at a time."""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("left", ["ij", "ji"])
@pytest.mark.parametrize("right", ["jk", "kj"])
@settings(max_examples=5, deadline=None)
@given(**SIZES)
def test_it_is_the_product_of_large_matrices(
    level: int, left: str, right: str, rows: int, inner: int, columns: int
) -> None:
    x, y = arrays((rows, inner), (inner, columns))
    form = MatrixProduct.of(rows, inner, columns, turned=left == "ji")
    form = form if right == "jk" else dataclasses.replace(form, right=(1, inner))
    given_x, given_y = (x if left == "ij" else x.T.copy()), (y if right == "jk" else y.T.copy())
    found = matrix_product.matrix_product(jnp.asarray(given_x), jnp.asarray(given_y), form, level)
    x, y = (each.astype(np.float64) for each in (x, y))
    assert np.all(abs(found - x @ y) <= 1e-6 * (abs(x) @ abs(y)))


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(1, 40), more=st.integers(1, 200))
def test_the_bits_of_a_row_do_not_depend_on_the_number_of_rows(rows: int, more: int) -> None:
    x, y = (jnp.asarray(each) for each in arrays((rows + more, 300), (300, 70)))
    form = MatrixProduct((), rows + more, 300, 70, (), (), (300, 1), (70, 1))
    whole = matrix_product.matrix_product(x, y, form)
    some = matrix_product.matrix_product(x[:rows], y, dataclasses.replace(form, rows=rows))
    np.testing.assert_array_equal(whole[:rows], some)


HEADS, SCORES = (4, 32, 2, 16), (4, 2, 32, 32)
"""[examples, tokens, heads, features], and weights for them."""
PRODUCTS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "queries and keys": ("bqhd,bkhd->bhqk", HEADS, HEADS),
    "weights and values": ("bhqk,bkhd->bqhd", SCORES, HEADS),
    "the gradient of values": ("bhqk,bqhd->bkhd", SCORES, HEADS),
    "the gradient of keys": ("bhqk,bqhd->bhkd", SCORES, HEADS),
    "matrices": ("bij,bjk->bik", (8, 40, 40), (8, 40, 40)),
    "four axes of a batch, one of them longer than 1": (
        "abcdij,abcdjk->abcdik",
        (1, 8, 1, 1, 40, 40),
        (1, 8, 1, 1, 40, 40),
    ),
    "a small layer": ("bi,io->bo", (32, 64), (64, 64)),
    "the gradient of its weights": ("bi,bo->io", (32, 64), (32, 64)),
    "the gradient of its inputs": ("bo,io->bi", (32, 64), (64, 64)),
    "a layer of tokens": ("bti,io->bto", (4, 16, 64), (64, 64)),
    "the gradient of its weights over tokens": ("bti,bto->io", (4, 16, 64), (4, 16, 64)),
    "a layer of many tokens": ("bti,io->bto", (8, 128, 256), (256, 1024)),
    "the gradient of its weights over many tokens": ("bti,bto->io", (8, 128, 256), (8, 128, 1024)),
    "a long sum": ("bij,bjk->bik", (2, 32, 1100), (2, 1100, 32)),
    "two sums": ("bijl,bjlk->bik", (8, 32, 8, 4), (8, 8, 4, 32)),
    "into heads": ("bti,ihd->bthd", (4, 16, 64), (64, 4, 16)),
    "from heads": ("bthd,hdo->bto", (4, 16, 4, 16), (4, 16, 64)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_programs_call_it(name: str) -> None:
    subscripts, *shapes = PRODUCTS[name]
    operands = arrays(*shapes)
    native = with_native_elementwise(lambda x, y: jnp.einsum(subscripts, x, y))
    assert calls_it(native, *operands)
    expected = np.einsum(subscripts, *(each.astype(np.float64) for each in operands))
    np.testing.assert_allclose(jit(native)(*operands), expected, rtol=1e-5, atol=1e-4)


FOLLOWED: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "heads put together": (lambda w, v: jnp.einsum("bhqk,bkhd->bqhd", w, v).reshape(4, 32, 32), (SCORES, HEADS)),
    "turned": (lambda w, q: jnp.einsum("bhqk,bqhd->bkhd", w, q), (SCORES, HEADS)),
    "read twice": (lambda w, v: (lambda y: (y, y + 1.0))(jnp.einsum("bhqk,bkhd->bqhd", w, v)), (SCORES, HEADS)),
    "a layer": (lambda x, w, b: x @ w + b, ((32, 64), (64, 80), (80,))),
    "a layer with ReLU": (lambda x, w, b: jax.nn.relu(x @ w + b), ((4, 32, 64), (64, 80), (80,))),
    "a layer into heads": (
        lambda x, w, b: jnp.einsum("bti,ihd->bthd", x, w) + b,
        ((4, 16, 64), (64, 4, 16), (4, 16)),
    ),
    "ReLU alone": (lambda x, w: jax.nn.relu(x @ w), ((32, 64), (64, 80))),
    "a bias of each row": (lambda x, w, b: x @ w + b[:, None], ((32, 64), (64, 32), (32,))),
    "a sum of two arrays": (lambda x, w, y: x @ w + y, ((32, 64), (64, 80), (32, 80))),
    "a residual block": (lambda x, w, b, z: z + (x @ w + b), ((4, 32, 64), (64, 80), (80,), (4, 32, 80))),
    "a residual block with ReLU": (
        lambda x, w, b, z: jax.nn.relu(z + (x @ w + b)),
        ((4, 32, 64), (64, 80), (80,), (4, 32, 80)),
    ),
    "a sum of a repeated row": (lambda x, w, z: x @ w + z[:1], ((32, 64), (64, 80), (32, 80))),
    "a sum with its square root": (lambda x, w: (lambda y: y + jnp.sqrt(abs(y)))(x @ w), ((32, 64), (64, 80))),
    "a sum with itself": (lambda x, w: (lambda y: y + y)(x @ w), ((32, 64), (64, 80))),
    "a sum that is returned too": (
        lambda x, w, b: (lambda y: (y, jax.nn.relu(y)))(x @ w + b),
        ((32, 64), (64, 80), (80,)),
    ),
    "another maximum": (lambda x, w, b: jnp.maximum(x @ w + b, 1.0), ((32, 64), (64, 80), (80,))),
    "the square of a transposition": (lambda x, w: jnp.square((x @ w).T), ((32, 64), (64, 80))),
}
"""What follows a product in programs: it is part of the call, or is computed after it."""
PART_OF_THE_CALL = (
    "heads put together",
    "turned",
    "read twice",
    "a layer",
    "a layer with ReLU",
    "a layer into heads",
    "ReLU alone",
    "a sum of two arrays",
    "a residual block",
    "a residual block with ReLU",
    "a sum of a repeated row",
)


@pytest.mark.parametrize("name", FOLLOWED)
def test_what_follows_a_product(name: str) -> None:
    function, shapes = FOLLOWED[name]
    operands = arrays(*shapes)
    native = with_native_elementwise(function)
    lowered = text(native, *operands)
    assert lowered.count(library.needed().target(library.MATRIX_PRODUCT)) == 1
    if name in PART_OF_THE_CALL and name != "read twice":
        assert not any(f"stablehlo.{each}" in lowered for each in ("transpose", "add", "maximum"))
    found, expected = (jax.tree.leaves(jit(each)(*operands)) for each in (native, function))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


def test_a_sum_of_products_is_part_of_one_call_each() -> None:
    """As in the gradient of what several layers read."""
    arrays_ = arrays((32, 64), (64, 80), (32, 40), (40, 80), (32, 48), (48, 80))

    def total(x: Any, y: Any, z: Any, w: Any, a: Any, b: Any) -> Any:
        return x @ y + z @ w + a @ b

    native = with_native_elementwise(total)
    lowered = text(native, *arrays_)
    assert lowered.count(library.needed().target(library.MATRIX_PRODUCT)) == 3
    assert "stablehlo.add" not in lowered
    np.testing.assert_allclose(jit(native)(*arrays_), total(*arrays_), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "both",
    [lambda one, two, bias: one + bias + two, lambda one, two, bias: (one + bias) + (two + bias)],
    ids=["a bias", "a bias each"],
)
def test_a_sum_of_products_with_relu_is_part_of_one_call_each(both: Callable[..., Any]) -> None:
    """The second product is read by the first one's call: what follows is taken."""
    given_arrays = arrays((32, 64), (64, 80), (32, 40), (40, 80), (80,))
    native = with_native_elementwise(lambda x, y, z, w, bias: jax.nn.relu(both(x @ y, z @ w, bias)))
    lowered = text(native, *given_arrays)
    assert lowered.count(library.needed().target(library.MATRIX_PRODUCT)) == 2
    assert "stablehlo.add" not in lowered and "stablehlo.maximum" not in lowered
    x, y, z, w, bias = given_arrays
    np.testing.assert_allclose(
        jit(native)(*given_arrays), np.maximum(both(x @ y, z @ w, bias), 0), rtol=1e-5, atol=1e-4
    )


OTHERS: dict[str, tuple[str, str, tuple[int, ...], tuple[int, ...]]] = {
    "large matrices": ("ij,jk->ik", "float32", (1024, 1024), (1024, 1024)),
    "a matrix that caches do not hold": ("ij,jk->ik", "float32", (8, 2048), (2048, 2048)),
    "a long and narrow matrix": ("ij,ik->jk", "float32", (4608, 24), (4608, 64)),
    "few numbers": ("bij,bjk->bik", "float32", (4, 8, 8), (4, 8, 8)),
    "few columns": ("ij,jk->ik", "float32", (600, 600), (600, 4)),
    "a vector": ("ij,j->i", "float32", (500, 100), (100,)),
    "a sum over axes that lie apart": ("jil,jlk->ik", "float32", (8, 32, 8), (8, 8, 32)),
    "four axes of a batch": ("abcdij,abcdjk->abcdik", "float32", (2, 2, 2, 2, 32, 32), (2, 2, 2, 2, 32, 32)),
    "float16": ("bij,bjk->bik", "float16", (8, 40, 40), (8, 40, 40)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_products_stay_with_xla(name: str) -> None:
    subscripts, dtype, *shapes = OTHERS[name]
    operands = [each.astype(dtype) for each in arrays(*shapes)]
    assert not calls_it(with_native_elementwise(lambda x, y: jnp.einsum(subscripts, x, y)), *operands)


def test_loops_and_gradients_call_it() -> None:
    queries, keys = arrays(HEADS, HEADS)

    def score(queries: Any, keys: Any) -> Any:
        return jnp.sum(jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", queries, keys)) ** 2)

    def loop(queries: Any, keys: Any) -> Any:
        def step(_: Any, at: Any) -> Any:
            return tuple(x - 0.1 * g for x, g in zip(at, jax.grad(score, (0, 1))(*at), strict=True))

        return lax.fori_loop(0, 3, step, (queries, keys))

    native = with_native_elementwise(loop)
    assert text(native, queries, keys).count(library.needed().target(library.MATRIX_PRODUCT)) >= 3
    for found, expected in zip(jit(native)(queries, keys), jit(loop)(queries, keys), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_portable_code_does_not_call_it() -> None:
    operands = arrays(SCORES, SCORES)
    assert not calls_it(portable.portable(with_native_elementwise(lambda x, y: x @ y)), *operands)


def hashed() -> str:
    x, y = arrays((5, 70, 300), (5, 300, 90))
    return hashlib.sha256(np.asarray(jit(with_native_elementwise(lambda x, y: x @ y))(x, y)).tobytes()).hexdigest()


@needs_affinity
def test_the_same_bits_on_one_core_as_on_all() -> None:
    assert hashed_on_one_core("tests.ipu_tf.device.elementwise.test_matrix_product") == hashed()


FORM = MatrixProduct((2,), 8, 8, 8, (64,), (64,), (8, 1), (8, 1))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inner": 0}, "sizes of at least 1"),
        ({"left_batch": (-64,)}, "no negative strides"),
        ({"left": (16, 1)}, "the left operand is not of the shape"),
        ({"right_batch": (65,)}, "the right operand is not of the shape"),
        ({"result": (64, 9)}, "the result is not of the shape"),
        ({"result": (65, 8)}, "the result is not of the shape"),
        ({"result": (-64, 8)}, "no negative strides"),
    ],
)
def test_the_kernel_refuses_what_lies_outside_of_its_operands(changed: dict[str, Any], message: str) -> None:
    form = dataclasses.replace(FORM, **changed)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        matrix_product.matrix_product(jnp.zeros((2, 8, 8)), jnp.zeros((2, 8, 8)), form).block_until_ready()


@pytest.mark.parametrize(("name", "size"), [("bias", 7), ("bias", 9), ("addend", 8), ("addend", 129)])
def test_the_kernel_refuses_what_it_cannot_add(name: str, size: int) -> None:
    x, added = jnp.zeros((2, 8, 8)), jnp.zeros(size)
    bias, addend = (added if name == each else None for each in ("bias", "addend"))
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"the {name} is not of the shape"):
        matrix_product.matrix_product(x, x, FORM, bias=bias, addend=addend).block_until_ready()
