"""Sums as products with ones equal plain sums: alone, for replicas, and from both front ends."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ipu_tf.device.convolution.summation import as_product, reduce_sum
from ipu_tf.lowering.jax.jaxpr_plans import planned

F32 = np.dtype(np.float32)
CASES = {
    "columns": ((8, 16, 16, 32), (0, 1, 2)),
    "middle": ((4, 16, 16, 32), (1, 2)),
    "rows": ((600, 64), (1,)),
    "several dimensions of rows": ((3, 100, 8, 16), (2, 3)),
}


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("shape, axes", CASES.values(), ids=CASES)
def test_products_with_ones(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    assert as_product(shape, F32, axes)
    x = array(*shape)
    np.testing.assert_array_equal(jax.jit(lambda a: reduce_sum(a, axes))(x), x.sum(axes))
    several = array(3, *shape)
    mapped = jax.jit(jax.vmap(lambda a: reduce_sum(a, axes)))(several)
    np.testing.assert_array_equal(mapped, several.sum(tuple(axis + 1 for axis in axes)))


def test_infinities_and_nan_stay_in_their_sums() -> None:
    x = np.ones((512, 64), np.float32)
    x[5, 1], x[6, 2] = np.inf, np.nan
    found = np.asarray(reduce_sum(jnp.asarray(x), (0,)))
    np.testing.assert_array_equal(found, x.sum(0))


@pytest.mark.parametrize(
    "shape, dtype, axes",
    [
        ((64, 10), F32, (0,)),
        ((512, 64), np.dtype(np.int32), (0,)),
        ((512, 64), np.dtype(np.float16), (0,)),
        ((2**15, 2**10), F32, (0,)),
        ((2**15, 3), F32, (0,)),
        ((16, 64, 64), F32, (0, 2)),
        ((2**15,), F32, (0,)),
        ((512, 64), F32, ()),
    ],
    ids=["small", "integers", "half", "large", "few columns", "apart", "all", "nothing"],
)
def test_other_sums_stay_sums(shape: tuple[int, ...], dtype: np.dtype, axes: tuple[int, ...]) -> None:
    assert not as_product(shape, dtype, axes)
    traced = str(jax.make_jaxpr(lambda x: reduce_sum(x, axes))(jax.ShapeDtypeStruct(shape, dtype)))
    assert "dot_general" not in traced


def test_steps_written_in_jax() -> None:
    def step(x: Any) -> Any:
        return jnp.mean(jnp.square(x), (0, 1, 2)), lax.reduce_sum(x, (1, 2))

    x = array(4, 16, 16, 32)
    run = planned(jax.make_jaxpr(step)(x))
    text = str(jax.make_jaxpr(run)(x))
    assert "dot_general" in text
    assert "reduce_sum" not in text
    means, sums = run(x)
    np.testing.assert_allclose(means, np.square(x).mean((0, 1, 2)), rtol=1e-6)
    np.testing.assert_array_equal(sums, x.sum((1, 2)))


@pytest.mark.parametrize(("shape", "axes"), [((65536, 64), (0,)), ((64, 65536), (1,)), ((65521, 32), (0,))])
def test_rounding_errors_grow_with_the_root_of_the_terms(shape: tuple[int, int], axes: tuple[int]) -> None:
    """One product over all terms is off by 6e-4 and 6e-5 here: each partial sum is rounded the same way."""
    x = np.full(shape, 0.1, np.float32)
    assert as_product(x.shape, x.dtype, axes)
    unit_roundoff = np.finfo(np.float32).eps / 2
    bound = 2 * np.sqrt(shape[axes[0]]) * unit_roundoff
    np.testing.assert_allclose(jax.jit(lambda x: reduce_sum(x, axes))(x), x.sum(axes, dtype=np.float64), rtol=bound)
