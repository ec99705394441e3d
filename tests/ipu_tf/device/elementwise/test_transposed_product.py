"""Products whose left matrix is transposed beforehand: against float64, and which they are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_tf.device.convolution.native import library
from ipu_tf.device.elementwise.evaluate import with_native_elementwise
from ipu_tf.device.elementwise.transposed_product import pays
from tests.helpers.exact_sums import small_integers
from tests.helpers.library_jit import jit

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")


def transposes(subscripts: str, *operands: Any) -> bool:
    function = with_native_elementwise(lambda x, g: jnp.einsum(subscripts, x, g))
    return "optimization_barrier" in jit(function).lower(*operands).as_text()


@pytest.mark.parametrize("subscripts", ["bi,bo->io", "bti,bto->io", "bti,tbo->io", "bi,ob->io"])
@settings(max_examples=10, deadline=None)
@given(rows=st.integers(26, 40), inputs=st.integers(1, 5), outputs=st.integers(9, 31))
def test_it_is_the_product(subscripts: str, rows: int, inputs: int, outputs: int) -> None:
    sizes = {"b": rows, "t": 160, "i": 64 * inputs, "o": outputs}  # too long and narrow for the native kernel
    if "t" not in subscripts:
        sizes["b"] *= 160
    first, second = subscripts.split("->")[0].split(",")
    x, g = (small_integers(*(sizes[axis] for axis in axes)) for axes in (first, second))
    assert transposes(subscripts, x, g) == pays(rows * 160, 64 * inputs)
    found = jit(with_native_elementwise(lambda x, g: jnp.einsum(subscripts, x, g)))(x, g)
    np.testing.assert_array_equal(found, np.einsum(subscripts, x.astype(np.float64), g))


@pytest.mark.parametrize(
    ("subscripts", "x", "g"),
    [
        ("ib,bo->io", (256, 1024), (1024, 8)),
        ("bi,bo->io", (1024, 250), (1024, 8)),
        ("bi,bo->io", (32, 256), (32, 256)),
        ("nbi,nbo->nio", (2, 1024, 256), (2, 1024, 8)),
    ],
    ids=["not transposed", "another width", "few rows", "a batch"],
)
def test_other_products_stay_as_they_are(subscripts: str, x: tuple[int, ...], g: tuple[int, ...]) -> None:
    assert not transposes(subscripts, *map(np.ones, (x, g)))


def test_float64_stays_as_it_is() -> None:
    with jax.enable_x64(True):
        assert not transposes("bi,bo->io", *(jnp.ones(shape, "float64") for shape in ((1024, 256), (1024, 8))))
