"""Products with packed weights, against float64: shapes, groups, edges, instruction sets, and the plain form."""

from __future__ import annotations

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ipu_tf.device import portable
from ipu_tf.device.convolution.native import library
from ipu_tf.device.packed.packed_product import PackedForm, packed_product
from tests.helpers.library_jit import jit
from tests.helpers.one_core import hashed_on_one_core, needs_affinity

built = pytest.mark.skipif(
    library.built() is None, reason="no native library: `python setup.py build_ext --inplace` builds it"
)
BY_COLUMN, BY_GROUP = PackedForm(1100, 900, 8, whole=True), PackedForm(700, 333, 4, block=128)
FORMS = {
    "int8, whole numbers": BY_COLUMN,
    "int8, float": PackedForm(300, 70, 8),
    "int4, whole numbers": PackedForm(64, 65, 4, whole=True),
    "int4, groups": BY_GROUP,
    "int4, groups of 5": PackedForm(33, 31, 4, block=5),
    "int8, turned": PackedForm(2100, 65, 8, turned=True, whole=True),
    "int4, turned": PackedForm(97, 130, 4, turned=True),
    "int4, turned, groups": PackedForm(77, 130, 4, turned=True, block=32),
    "int4, turned, one group": PackedForm(77, 13, 4, turned=True, block=80),
    "int4, turned, groups that cut units": PackedForm(70, 13, 4, turned=True, block=20),
}


def operands(form: PackedForm, rows: int) -> tuple[Any, ...]:
    """x, weights, and where there are groups scale and zero."""
    rng = np.random.default_rng(rows)
    whole = rng.integers(-128, 128, (rows, form.inner)).astype(np.float32)
    x = whole if form.whole else rng.standard_normal((rows, form.inner), np.float32)
    lines, last = (form.columns, form.inner) if form.turned else (form.inner, form.columns)
    weights = rng.integers(-128, 128, (lines, -(-last * form.bits // 8))).astype(np.int8)
    shape = (form.columns, form.groups) if form.turned else (form.groups, form.columns)
    groups = (rng.uniform(0.1, 1, shape).astype(np.float32), rng.integers(-8, 8, shape).astype(np.int8))
    return x, weights, *(groups if form.block else ())


def exact(form: PackedForm, x: Any, weights: Any, scale: Any = None, zero: Any = None) -> tuple[Any, Any]:
    """The product in float64, and that of absolute values."""
    if form.bits == 4:
        low = np.where((weights & 15) > 7, (weights & 15) - 16, weights & 15)
        weights = np.stack([low, weights >> 4], -1).reshape(len(weights), -1)
        weights = weights[:, : form.inner if form.turned else form.columns]
    wide: Any = np.asarray(weights, np.float64)
    if scale is not None:
        axis, place = int(form.turned), np.arange(form.inner) // form.block
        wide = (wide - np.float64(zero).take(place, axis)) * np.float64(scale).take(place, axis)
    wide = wide.T if form.turned else wide
    return x.astype(np.float64) @ wide, np.abs(x).astype(np.float64) @ (np.abs(wide) + 8)


def check(form: PackedForm, rows: int, level: int | None = None) -> None:
    given = operands(form, rows)
    x, weights, *groups = map(jnp.asarray, given)
    found = np.asarray(
        jit(lambda *each: packed_product(each[0], each[1], form, *each[2:], level=level))(x, weights, *groups)
    )
    wanted, size = exact(form, *given)
    assert found.dtype == (np.int32 if form.whole else np.float32)
    if form.whole:
        assert (found == wanted).all()
    else:
        assert (np.abs(found - wanted) <= 1e-6 * size).all()


@built
@pytest.mark.parametrize("level", range(len(library.LEVELS)), ids=library.LEVELS)
@pytest.mark.parametrize("name", FORMS)
def test_products_of_each_instruction_set(name: str, level: int) -> None:
    check(FORMS[name], 13, level)


@pytest.mark.parametrize("name", FORMS)
def test_without_the_library_plain_jax_computes_the_same(name: str) -> None:
    with portable.without_native_code():
        check(FORMS[name], 3)


@built
@pytest.mark.parametrize("level", range(len(library.LEVELS)), ids=library.LEVELS)
@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.block])
def test_an_infinity_is_multiplied_with_each_weight_of_its_group(name: str, level: int) -> None:
    """Not with the weight, and with the zero by itself: that would be inf - inf."""
    x, weights, scale, zero = operands(FORMS[name], 13)
    x[5, 3] = np.inf
    with np.errstate(invalid="ignore"):  # infinity times 0
        wanted, _ = exact(FORMS[name], x, weights, scale, zero)
    given_x, given_weights = jnp.asarray(x), jnp.asarray(weights)
    found = np.asarray(packed_product(given_x, given_weights, FORMS[name], scale, zero, level=level))
    np.testing.assert_array_equal(found[5], wanted[5])
    assert np.isinf(found[5]).any() and np.isfinite(np.delete(found, 5, 0)).all()


@built
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("level", range(len(library.LEVELS)), ids=library.LEVELS)
def test_a_group_may_be_too_large_to_be_summed(level: int, turned: bool) -> None:
    """Weights of the group's zero add nothing, whatever x is."""
    form = PackedForm(96, 96, 8, turned, block=32)
    x, weights, scale, zero = operands(form, 5)
    x[:], weights[:], zero[:] = 3e37, 101, 101
    found = packed_product(jnp.asarray(x), jnp.asarray(weights), form, scale, zero, level=level)
    np.testing.assert_array_equal(found, np.zeros((5, 96)))


@built
@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 10), st.integers(1, 200), st.integers(1, 150), st.sampled_from([4, 8]), st.booleans(),
    st.sampled_from([0, 1, 7, 32, 64]), st.booleans(), st.integers(0, 2),
)  # fmt: skip
def test_random_products(
    rows: int, inner: int, columns: int, bits: int, turned: bool, block: int, whole: bool, level: int
) -> None:
    check(PackedForm(inner, columns, bits, turned, block, whole and not block), rows, level)


def hashed() -> str:
    """A hash of the bits of products of several parts."""
    made = hashlib.sha256()
    for form in (BY_GROUP, PackedForm(300, 900, 8)):
        assert form.words(2, 12)[-1] > 1
        x, weights, *groups = map(jnp.asarray, operands(form, 12))
        made.update(np.asarray(packed_product(x, weights, form, *groups)).tobytes())
    return made.hexdigest()


@built
@needs_affinity
def test_the_same_bits_on_one_core_as_on_all() -> None:
    assert hashed_on_one_core("tests.ipu_tf.device.packed.test_packed_product") == hashed()
    assert len({hashed() for _ in range(5)}) == 1


@built
def test_the_native_kernel_is_used_unless_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [jnp.asarray(each) for each in operands(BY_COLUMN, 1)]

    def lowered() -> str:
        return jit(lambda x, weights: packed_product(x, weights, BY_COLUMN)).lower(*given).as_text()

    assert library.PACKED_PRODUCT in lowered()
    with portable.without_native_code():
        assert library.PACKED_PRODUCT not in lowered()
    monkeypatch.setenv("IPU_TF_NATIVE", "0")
    assert library.PACKED_PRODUCT not in lowered()


@built
def test_the_kernel_refuses_buffers_of_another_size() -> None:
    native = library.loaded()
    assert native is not None
    x, weights = (jnp.asarray(each) for each in operands(BY_COLUMN, 1))
    result = jax.ShapeDtypeStruct((1, BY_COLUMN.columns), jnp.int32)
    call = jax.ffi.ffi_call(native.target(library.PACKED_PRODUCT), result)
    with pytest.raises(jax.errors.JaxRuntimeError, match="the weights are not of the shape"):
        jax.block_until_ready(call(x, weights[:-1], shapes=BY_COLUMN.words(2, 1)))
    with pytest.raises(jax.errors.JaxRuntimeError, match="shapes are of another version"):
        jax.block_until_ready(call(x, weights, shapes=BY_COLUMN.words(2, 1)[:-1]))
