"""Sums by the native kernel and as products with ones equal plain sums: alone, for replicas, from both front ends."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from ipu_tf.device import portable
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.sums import MiddleSum, middle_sum
from ipu_tf.device.convolution.summation import as_product, reduce_sum
from ipu_tf.lowering.jax.jaxpr_plans import planned
from tests.helpers.library_jit import jit

F32 = np.dtype(np.float32)
CASES = {
    "columns": ((8, 16, 16, 32), (0, 1, 2)),
    "middle": ((4, 16, 16, 32), (1, 2)),
    "rows": ((600, 64), (1,)),
    "several dimensions of rows": ((3, 100, 8, 16), (2, 3)),
}


needs_kernel = pytest.mark.skipif(
    library.built() is None, reason="no native library: `python setup.py build_ext --inplace` builds it"
)


@pytest.fixture(params=[pytest.param("kernel", marks=needs_kernel), "product"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How sums are computed: by the native kernel, or as products."""
    monkeypatch.setenv("IPU_TF_NATIVE", str(int(request.param == "kernel")))
    return str(request.param)


def calls(traced: str) -> dict[str, bool]:
    """Which ways of summing a traced function has."""
    names = {"kernel": library.SUM, "product": "dot_general", "loop": "reduce_sum"}
    return {way: name in traced for way, name in names.items()}


def array(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("shape, axes", CASES.values(), ids=CASES)
@pytest.mark.usefixtures("way")
def test_sums_over_neighbouring_axes(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    assert as_product(shape, F32, axes)
    x = array(*shape)
    np.testing.assert_array_equal(jit(lambda a: reduce_sum(a, axes))(x), x.sum(axes))
    several = array(3, *shape)
    mapped = jit(jax.vmap(lambda a: reduce_sum(a, axes)))(several)
    np.testing.assert_array_equal(mapped, several.sum(tuple(axis + 1 for axis in axes)))


@pytest.mark.usefixtures("way")
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
    assert not calls(traced)["product"]
    assert not calls(traced)["kernel"]


def test_steps_written_in_jax(way: str) -> None:
    def step(x: Any) -> Any:
        return jnp.mean(jnp.square(x), (0, 1, 2)), lax.reduce_sum(x, (1, 2))

    x = array(4, 16, 16, 32)
    run = planned(jax.make_jaxpr(step)(x))
    assert calls(str(jax.make_jaxpr(run)(x))) == {"kernel": False, "product": False, "loop": False, way: True}
    means, sums = run(x)
    np.testing.assert_allclose(means, np.square(x).mean((0, 1, 2)), rtol=1e-6)
    np.testing.assert_array_equal(sums, x.sum((1, 2)))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("shape", "axes"), [((65536, 64), (0,)), ((64, 65536), (1,)), ((65521, 32), (0,))])
def test_rounding_errors_grow_with_the_root_of_the_terms(shape: tuple[int, int], axes: tuple[int]) -> None:
    """One product over all terms is off by 6e-4 and 6e-5 here: each partial sum is rounded the same way."""
    x = np.full(shape, 0.1, np.float32)
    assert as_product(x.shape, x.dtype, axes)
    unit_roundoff = np.finfo(np.float32).eps / 2
    bound = 2 * np.sqrt(shape[axes[0]]) * unit_roundoff
    np.testing.assert_allclose(jit(lambda x: reduce_sum(x, axes))(x), x.sum(axes, dtype=np.float64), rtol=bound)


@needs_kernel
@pytest.mark.parametrize(
    "shape",
    [(1, 4099, 16), (1, 70001, 1), (5, 33, 17), (3, 129, 1), (40, 700, 47), (1, 65, 1153), (2, 5000, 100), (1, 1, 3)],
    ids=str,
)
def test_the_kernel_against_float64_and_on_every_instruction_set(shape: tuple[int, int, int]) -> None:
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    exact, most = x.sum(1, dtype=np.float64), np.abs(x).sum(1, dtype=np.float64)
    found = [np.asarray(jit(lambda x, level=level: middle_sum(x, level))(x)) for level in range(3)]
    assert np.max(np.abs(found[0] - exact) / most) < 16 * np.finfo(np.float32).eps
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_parts_cover_large_sums() -> None:
    assert MiddleSum(1, 65536, 96).partition() == (16, 1)
    assert MiddleSum(600, 512, 64).partition() == (1, 16)
    assert MiddleSum(3, 2**18, 8).partition() == (5, 3)
    assert MiddleSum(1, 64, 96).partition() == (1, 1)


@needs_kernel
def test_the_kernel_refuses_other_shapes() -> None:
    """It does not read or write beyond what it is given."""
    x = jnp.ones((2, 64, 8), jnp.float32)
    result, little = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((2, 8), (1,)))
    for words, message in (
        ([2, 2, 65, 8, 1, 1], "x is not of the shape"),
        ([2, 1, 128, 8, 1, 1], "the result is not of the shape"),
        ([2, 2, 64, 8, 2, 1], "too little room for sums"),
        ([2, 2, 64, 8, 0, 1], "sizes are not positive"),
        ([2, 2, 64, 8, 1], "shapes are of another version"),
    ):
        call = jax.ffi.ffi_call(library.needed().target(library.SUM), (result, little))
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.block_until_ready(call(x, shapes=np.array(words, np.int64)))


@needs_kernel
def test_exported_programs_have_products() -> None:
    traced = str(jax.make_jaxpr(portable.portable(lambda x: reduce_sum(x, (0,))))(array(512, 64)))
    assert calls(traced) == {"kernel": False, "product": True, "loop": False}
