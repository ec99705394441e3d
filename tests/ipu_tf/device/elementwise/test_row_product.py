"""Products of a few rows with a large matrix by the native kernel: against float64, and where programs call it."""

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
from ipu_tf.device.convolution.native import library, row_product
from ipu_tf.device.convolution.native.row_product import RowProduct
from ipu_tf.device.elementwise import call_choice
from ipu_tf.device.elementwise.evaluate import with_native_elementwise
from tests.helpers.library_jit import jit
from tests.helpers.one_core import hashed_on_one_core, needs_affinity

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")

LEVELS = range(len(library.LEVELS))
MATRIX, HEADS = (600, 500), (12, 50, 500)
"""Large enough for the kernel."""


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape, np.float32) for shape in shapes]


def text(function: Callable[..., Any], *arguments: Any) -> str:
    return jit(function).lower(*arguments).as_text()


def assert_close(found: Any, x: np.ndarray, matrix: np.ndarray) -> None:
    """Compares with float64: the error of a sum is relative to the sum of its terms' magnitudes."""
    exact = x.astype(np.float64) @ matrix
    bound = 1e-6 * (abs(x.astype(np.float64)) @ abs(matrix)) + 1e-30
    assert np.all(abs(np.asarray(found) - exact) <= bound)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("turned", [False, True], ids=["as it is", "turned"])
@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 8), inner=st.integers(1, 700), columns=st.integers(1, 700))
def test_it_is_the_product(level: int, turned: bool, rows: int, inner: int, columns: int) -> None:
    x, matrix = arrays((rows, inner), (inner, columns))
    given_matrix = np.ascontiguousarray(matrix.T) if turned else matrix
    assert_close(row_product.row_product(jnp.asarray(x), jnp.asarray(given_matrix), turned, level), x, matrix)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("turned", [False, True], ids=["as it is", "turned"])
@pytest.mark.parametrize("columns", [1, 17])
def test_sums_of_very_many_terms(level: int, turned: bool, columns: int) -> None:
    """A term of 0.01 added to a sum of 5,000 is another by 2 %."""
    inner = (1 << 22) // columns
    x, matrix = np.full((2, inner), 0.1, np.float32), np.full((inner, columns), 0.1, np.float32)
    given_matrix = np.ascontiguousarray(matrix.T) if turned else matrix
    found = row_product.row_product(jnp.asarray(x), jnp.asarray(given_matrix), turned, level)
    np.testing.assert_allclose(found, np.full((2, columns), inner * float(np.float32(0.1)) ** 2), rtol=1e-5)


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "x @ matrix": (lambda x, matrix: x @ matrix, (1, 600), MATRIX),
    "vector": (lambda x, matrix: x @ matrix, (600,), MATRIX),
    "matrix @ vector": (lambda x, matrix: matrix @ x, (500,), MATRIX),
    "matrix @ few columns": (lambda x, matrix: matrix @ x, (500, 3), MATRIX),
    "batch of prompts": (lambda x, matrix: x @ matrix, (4, 1, 600), MATRIX),
    "into heads": (lambda x, matrix: jnp.einsum("bqm,mnh->bqnh", x, matrix), (2, 1, 600), (600, 10, 50)),
    "from heads": (lambda x, matrix: jnp.einsum("bqnh,nhm->bqm", x, matrix), (2, 1, 12, 50), HEADS),
    "table of words": (lambda x, matrix: jnp.einsum("bqm,vm->bqv", x, matrix), (2, 1, 500), MATRIX),
    "axes in another order": (lambda x, matrix: jnp.einsum("hnq,nhm->qm", x, matrix), (50, 12, 3), HEADS),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_programs_call_it_for_a_few_rows(name: str) -> None:
    function, x, matrix = PRODUCTS[name]
    operands = arrays(x, matrix)
    native = with_native_elementwise(function)
    assert library.needed().target(library.ROW_PRODUCT) in text(native, *operands)
    expected = function(*(each.astype(np.float64) for each in operands))
    np.testing.assert_allclose(jit(native)(*operands), expected, rtol=1e-5, atol=2e-4)


OTHERS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "many rows": (lambda x, matrix: x @ matrix, (9, 600), MATRIX),
    "a small matrix": (lambda x, matrix: x @ matrix, (1, 60), (60, 500)),
    "a batch of matrices": (lambda x, matrix: jnp.einsum("bm,bmn->bn", x, matrix), (4, 600), (4, *MATRIX)),
    "the middle axis": (lambda x, matrix: jnp.einsum("m,amn->an", x, matrix), (60,), (50, 60, 500)),
    "float16": (lambda x, matrix: x.astype("float16") @ matrix.astype("float16"), (1, 600), MATRIX),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_products_stay_with_xla(name: str) -> None:
    function, x, matrix = OTHERS[name]
    operands = arrays(x, matrix)
    assert library.needed().target(library.ROW_PRODUCT) not in text(with_native_elementwise(function), *operands)


def test_loops_call_it() -> None:
    x, matrix = arrays((1, 600), (600, 600))

    def loop(x: jax.Array, matrix: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, lambda _, value: jnp.tanh(value @ matrix / 25), x)

    native = with_native_elementwise(loop)
    assert library.needed().target(library.ROW_PRODUCT) in text(native, x, matrix)
    np.testing.assert_allclose(jit(native)(x, matrix), jit(loop)(x, matrix), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("elements", "expected"), [(600, False), (60000, True)])
def test_elementwise_operations_on_few_elements_beside_it_stay_with_xla(
    elements: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_choice, "DISTINCT", 1)
    x, matrix, others = map(jnp.asarray, arrays((1, 600), MATRIX, (elements,)))

    def program(x: Any, matrix: Any, others: Any) -> Any:
        return jnp.square(x) @ matrix, others * 2.0 + 1.0

    found = text(with_native_elementwise(program), x, matrix, others)
    assert (library.ELEMENTWISE in found) == expected
    assert library.ELEMENTWISE in text(with_native_elementwise(lambda others: others * 2.0 + 1.0), others)


def test_portable_code_does_not_call_it() -> None:
    x, matrix = arrays((1, 600), MATRIX)
    native = with_native_elementwise(lambda x, matrix: x @ matrix)
    assert library.needed().target(library.ROW_PRODUCT) not in text(portable.portable(native), x, matrix)


def test_parts_follow_from_the_shapes() -> None:
    assert [RowProduct(1, *sizes).parts for sizes in ((768, 768), (3072, 768), (3, 2**20), (768, 50257))] == [
        4,
        16,
        3,
        16,
    ]
    assert RowProduct(2, 768, 768).room() == 4 * 2 * 768
    assert RowProduct(2, 768, 768, turned=True).room() == 1


def hashed() -> str:
    made = hashlib.sha256()
    for turned in (False, True):
        x, matrix = map(jnp.asarray, arrays((3, 900), (900, 900)))
        made.update(np.asarray(row_product.row_product(x, matrix, turned)).tobytes())
    return made.hexdigest()


@needs_affinity
def test_the_same_bits_on_one_core_as_on_all() -> None:
    assert hashed_on_one_core("tests.ipu_tf.device.elementwise.test_row_product") == hashed()


@pytest.mark.parametrize(("x", "matrix"), [((9, 600), MATRIX), ((1, 0), (0, 500))])
def test_the_kernel_refuses_other_sizes(x: tuple[int, int], matrix: tuple[int, int]) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match="wanted 1 to 8 rows"):
        row_product.row_product(jnp.zeros(x), jnp.zeros(matrix)).block_until_ready()
