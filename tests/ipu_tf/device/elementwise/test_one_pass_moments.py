"""Sums and squared distances from the mean in one pass: the kernel, and programs that are rewritten to call it."""

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

from ipu_tf.device import portable
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.sums import moments
from ipu_tf.device.convolution.summation import reduce_sum
from ipu_tf.device.elementwise.evaluate import with_native_elementwise
from ipu_tf.lowering.jax.jaxpr_plans import planned
from tests.helpers.exact_sums import small_integers
from tests.helpers.library_jit import jit
from tests.helpers.one_core import hashed_on_one_core, needs_affinity

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")

LEVELS = range(len(library.LEVELS))
IMAGES = (8, 16, 16, 32)
AXES, TERMS = (0, 1, 2), 8 * 16 * 16
ROUNDING = 2**-23


def normal(*shape: int, mean: float = 0) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal(shape) + mean).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 700), st.integers(1, 150))
    | st.tuples(st.integers(1, 20), st.integers(1, 3000), st.just(1)),
    mean=st.sampled_from([0, 1, 1000, -30000]),
)
def test_they_are_the_moments(shape: tuple[int, int, int], mean: float) -> None:
    """To the rounding of float32, however far the mean is from zero."""
    x = normal(*shape, mean=mean)
    exact = x.astype(np.float64)
    apart = exact - exact.mean(1, keepdims=True)
    found = [moments(jnp.asarray(x), level) for level in LEVELS]
    sums, squares = map(np.asarray, found[0])
    assert np.all(abs(sums - exact.sum(1)) <= ROUNDING * (abs(exact).sum(1)))
    assert np.all(abs(squares - (apart**2).sum(1)) <= 16 * ROUNDING * (apart**2).sum(1))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("shape", [(1, 70001, 16), (1, 4099, 200), (40, 4700, 20), (3, 300001, 1)], ids=str)
def test_parts_are_put_together(shape: tuple[int, int, int]) -> None:
    """Of one mean each: parts and blocks whose means differ add to the squares."""
    x = small_integers(*shape) + np.arange(shape[1], dtype=np.float32)[None, :, None]
    sums, squares = moments(jnp.asarray(x))
    exact = x.astype(np.float64)
    np.testing.assert_allclose(sums, exact.sum(1), rtol=2 * ROUNDING)
    np.testing.assert_allclose(squares, exact.var(1) * shape[1], rtol=16 * ROUNDING)


def test_a_column_of_one_value_has_no_squares() -> None:
    squares = np.asarray(moments(jnp.full((1, 1000, 33), 0.1, jnp.float32))[1])
    assert (squares >= 0).all() and (squares <= 1e-12).all()


@pytest.mark.parametrize("terms", [123, 246, 300, 984, 1017, 1024, 3000])
@pytest.mark.parametrize("value", [0.1, -0.1, 1e-3, 7.3, 1e20])
def test_a_row_of_one_value_has_a_standard_deviation(terms: int, value: float) -> None:
    """Round-off of the sums must not make a variance negative, whose root is NaN."""
    x = jnp.full((256, terms), value, jnp.float32)
    squares = np.asarray(moments(x[:, :, None])[1])
    assert (squares >= 0).all()

    def spread(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.var(x, -1), jnp.std(x, -1)

    variance, deviation = jit(with_native_elementwise(planned(jax.make_jaxpr(spread)(x))))(x)
    assert (np.asarray(variance) >= 0).all()
    assert (np.asarray(deviation) <= abs(value) * 1e-6).all()


def test_infinities_and_nan_stay_in_their_columns() -> None:
    x = np.ones((1, 512, 40), np.float32)
    x[0, 5, 1], x[0, 6, 2] = np.inf, np.nan
    sums, squares = (np.asarray(each)[0] for each in moments(jnp.asarray(x)))
    np.testing.assert_array_equal(sums, x[0].sum(0))
    assert np.isnan(squares[1:3]).all() and np.isfinite(np.delete(squares, [1, 2])).all()
    rows_sums, rows_squares = (np.asarray(each)[:, 0] for each in moments(jnp.asarray(x[0].T[:, :, None])))
    np.testing.assert_array_equal(rows_sums, sums)
    np.testing.assert_array_equal(np.isnan(rows_squares), np.isnan(squares))


def hashed() -> str:
    """A hash of the bits of some results."""
    made = hashlib.sha256()
    for shape in ((1, 9000, 96), (3, 40000, 40), (700, 300, 1), (2, 90000, 1)):
        for each in moments(jnp.asarray(normal(*shape))):
            made.update(np.asarray(each).tobytes())
    return made.hexdigest()


@needs_affinity
def test_the_same_bits_on_one_core_as_on_all() -> None:
    assert hashed_on_one_core("tests.ipu_tf.device.elementwise.test_one_pass_moments") == hashed()


def test_the_kernel_refuses_other_shapes() -> None:
    """It does not read or write beyond what it is given."""
    x = jnp.ones((2, 64, 8), jnp.float32)
    result, little = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((2, 8), (1,)))
    words = [2, 2, 64, 8, 1, 1]
    for results, given_words, message in (
        ((result, result), [2, 2, 65, 8, 1, 1], "x is not of the shape"),
        ((result, little), words, "a result is not of the shape"),
        ((little, result), words, "a result is not of the shape"),
        ((result,), words, "one operand and two results"),
        ((result, result), [2, 2, 64, 8, 0, 1], "sizes are not positive"),
        ((result, result), [2, 2, 64, 8, 65, 1], "more slices than terms"),
        ((result, result), [2, 2, 64, 8, 1], "the shapes of moments are of another version"),
    ):
        call = jax.ffi.ffi_call(library.needed().target(library.MOMENTS), results)
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.block_until_ready(call(x, shapes=np.array(given_words, np.int64)))


def by_total(square: Callable[[Any], Any]) -> Callable[..., Any]:
    """Mean and variance of each feature, with a way to write the square."""

    def statistics(x: Any) -> Any:
        mean = reduce_sum(x, AXES) / TERMS
        return mean, reduce_sum(square(x - mean), AXES) / TERMS

    return statistics


PROGRAMS: dict[str, Callable[..., Any]] = {
    "square": by_total(jnp.square),
    "power": by_total(lambda apart: jax.lax.integer_pow(apart, 2)),
    "product": by_total(lambda apart: apart * apart),
    "jax.numpy": lambda x: (jnp.mean(x, AXES), jnp.var(x, AXES)),
    "kept axes": lambda x: (jnp.mean(x, AXES, keepdims=True)[0, 0, 0], jnp.var(x, AXES, keepdims=True)[0, 0, 0]),
}


def text(function: Callable[..., Any], *arguments: Any) -> str:
    return jit(function).lower(*arguments).as_text()


def as_planned(function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
    """The function with its sums by the native kernel, as programs have them."""
    return with_native_elementwise(planned(jax.make_jaxpr(function)(*arguments)))


def assert_one_pass(function: Callable[..., Any], x: np.ndarray, axes: Any, atol: float = 1e-6) -> None:
    """Fails unless a function computes mean and variance over some axes in one call."""
    program = as_planned(function, x)
    lowered = text(program, x)
    assert lowered.count(library.MOMENTS) == 1
    assert f"{library.SUM}_" not in lowered
    means, variances = jit(program)(x)
    exact = x.astype(np.float64)
    np.testing.assert_allclose(means, exact.mean(axes), rtol=1e-6, atol=atol)
    np.testing.assert_allclose(variances, exact.var(axes), rtol=1e-6)


@pytest.mark.parametrize("mean", [0, 1000])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_mean_and_variance_in_one_pass(name: str, mean: float) -> None:
    assert_one_pass(PROGRAMS[name], normal(*IMAGES, mean=mean), AXES, atol=1e-7)


ROW_PROGRAMS: dict[str, Callable[..., Any]] = {
    "jax.numpy": lambda x: (jnp.mean(x, -1), jnp.var(x, -1)),
    "kept axes": lambda x: (jnp.mean(x, -1, keepdims=True)[..., 0], jnp.var(x, -1, keepdims=True)[..., 0]),
    "flat": lambda x: (jnp.mean(x.reshape(-1, 32), 1).reshape(x.shape[:3]), jnp.var(x, -1)),
}


@pytest.mark.parametrize("mean", [0, 1000])
@pytest.mark.parametrize("name", ROW_PROGRAMS)
def test_those_of_rows_too(name: str, mean: float) -> None:
    """As of layer normalisation."""
    assert_one_pass(ROW_PROGRAMS[name], normal(*IMAGES, mean=mean), -1)


def test_those_of_groups_of_columns_too() -> None:
    """As of instance normalisation: a sum for each image and feature."""
    assert_one_pass(lambda x: (jnp.mean(x, (1, 2)), jnp.var(x, (1, 2))), normal(*IMAGES), (1, 2))


@settings(max_examples=20, deadline=None)
@given(center=st.lists(st.floats(-100, 100, width=32), min_size=32, max_size=32))
def test_distances_from_anything(center: list[float]) -> None:
    x, about = normal(*IMAGES), np.array(center, np.float32)

    def statistics(x: Any, about: Any) -> Any:
        return reduce_sum(x, AXES), reduce_sum(jnp.square(x - about), AXES)

    assert library.MOMENTS in text(with_native_elementwise(statistics), x, about)
    _, squares = jit(with_native_elementwise(statistics))(x, about)
    np.testing.assert_allclose(squares, ((x.astype(np.float64) - about) ** 2).sum(AXES), rtol=1e-6)


def test_distances_from_a_sum_that_is_computed_twice() -> None:
    x = normal(*IMAGES)

    def statistics(x: Any) -> Any:
        first, second = reduce_sum(x, AXES), reduce_sum(x, AXES)
        return first, reduce_sum(jnp.square(x - second), AXES), second * 2.0, second

    lowered = text(with_native_elementwise(statistics), x)
    assert lowered.count(library.MOMENTS) == 1 and f"{library.SUM}_" not in lowered
    total = x.astype(np.float64).sum(AXES)
    first, squares, doubled, second = jit(with_native_elementwise(statistics))(x)
    np.testing.assert_allclose(squares, ((x - total) ** 2).sum(AXES), rtol=1e-5)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(doubled, 2 * first)


OTHERS: dict[str, Callable[..., Any]] = {
    "one sum": lambda x, y: reduce_sum(jnp.square(x - y[0, 0, 0]), AXES),
    "squares alone": lambda x, y: (reduce_sum(x, AXES), reduce_sum(x * x, AXES)),
    "another array": lambda x, y: (reduce_sum(x, AXES), reduce_sum(jnp.square(y - reduce_sum(x, AXES)), AXES)),
    "a distance from images": lambda x, y: (reduce_sum(x, AXES), reduce_sum(jnp.square(x - y), AXES)),
    "a distance from a number": lambda x, y: (reduce_sum(x, AXES), reduce_sum(jnp.square(x - 1.0), AXES)),
    "a distance from rows": lambda x, y: (reduce_sum(x, AXES), reduce_sum(jnp.square(x - y[:, :1, :1]), AXES)),
    "two factors": lambda x, y: (reduce_sum(x, AXES), reduce_sum((x - y[0, 0, 0]) * (x - y[1, 0, 0]), AXES)),
    "cubes": lambda x, y: (reduce_sum(x, AXES), reduce_sum((x - y[0, 0, 0]) ** 3, AXES)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_sums_stay_sums(name: str) -> None:
    x = normal(*IMAGES)
    lowered = text(with_native_elementwise(OTHERS[name]), x, x)
    assert library.MOMENTS not in lowered
    assert f"{library.SUM}_" in lowered


def test_code_for_files_has_no_such_call() -> None:
    x = normal(*IMAGES)
    program = portable.portable(as_planned(PROGRAMS["square"], x))
    assert library.MOMENTS not in text(program, x)


def test_gradients_and_loops_have_it_too() -> None:
    x = normal(*IMAGES)

    def loss(x: Any) -> Any:
        return jnp.sum(jnp.sin((x - jnp.mean(x, AXES)) * jax.lax.rsqrt(jnp.var(x, AXES) + 1e-3)))

    def descent(step: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: jax.lax.fori_loop(0, 3, lambda _, at: at - 0.1 * step(at)[0], x)

    step = planned(jax.make_jaxpr(jax.grad(loss))(x))
    program = with_native_elementwise(descent(step))
    assert library.MOMENTS in text(program, x)
    expected = jit(descent(lambda at: [jax.grad(loss)(at)]))(x)
    np.testing.assert_allclose(jit(program)(x), expected, rtol=1e-5, atol=1e-6)
