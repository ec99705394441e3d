"""Native depthwise convolutions: against float64, their bits on any number of cores, and where they are used."""

from __future__ import annotations

import dataclasses
import hashlib
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ipu_tf.device import portable
from ipu_tf.device.convolution.native import library
from ipu_tf.device.convolution.native.depthwise import MOST_TAPS, Depthwise, depthwise
from ipu_tf.device.convolution.native_plan import depthwise_of
from ipu_tf.device.convolution.plan import NATIVE, ONEDNN
from ipu_tf.device.convolution.plans import choose, solve
from ipu_tf.device.convolution.problem import CanonicalConvolution
from tests.helpers.one_core import hashed_on_one_core, needs_affinity

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")

LEVELS = range(len(library.LEVELS))
ONES, SAME = (1, 1), ((1, 1), (1, 1))
LAYER = CanonicalConvolution(4, 40, 40, (24, 24), (3, 3), ONES, SAME, ONES, ONES, feature_groups=40)
#: A step of 2, as MobileNetV2 has it, and the gradient of its input.
STRIDED = LAYER.but(batch=16, strides=(2, 2), padding=((0, 1), (0, 1)))
GRADIENT = LAYER.but(input=(12, 12), input_dilation=(2, 2), padding=((2, 1), (2, 1)))


def operands(problem: CanonicalConvolution) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return (
        random.standard_normal(problem.input_shape, np.float32),
        random.standard_normal(problem.kernel_shape, np.float32),
    )


def by_numpy(x: np.ndarray, filters: np.ndarray, each: Depthwise) -> np.ndarray:
    """The convolution in float64, position by position."""
    result = np.zeros((each.images, *each.output, each.features))
    for place in np.ndindex(*each.output):
        for tap in np.ndindex(*each.window):
            axes = zip(place, each.strides, tap, each.dilation, each.low, strict=True)
            at = [o * stride + k * dilation - low for o, stride, k, dilation, low in axes]
            if any(n % spread for n, spread in zip(at, each.spread, strict=True)):
                continue
            seen = tuple(n // spread for n, spread in zip(at, each.spread, strict=True))
            if all(0 <= n < size for n, size in zip(seen, each.input, strict=True)):
                result[(slice(None), *place)] += x[(slice(None), *seen)].astype(np.float64) * filters[tap][0]
    return result


@st.composite
def problems(draw: st.DrawFn) -> CanonicalConvolution:
    """Small ones of one to three axes: strides or dilated inputs, dilated windows, padding that crops."""
    rank = draw(st.integers(1, 3))

    def each(values: st.SearchStrategy) -> tuple:
        return tuple(draw(st.lists(values, min_size=rank, max_size=rank)))

    steps = each(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]))
    features = draw(st.sampled_from([16, 17, 31, 32, 40, 64, 72, 100]))
    problem = CanonicalConvolution(
        batch=draw(st.integers(1, 3)),
        in_features=features,
        out_features=features,
        input=each(st.integers(1, 11 if rank < 3 else 5)),
        window=each(st.integers(1, 5 if rank < 3 else 3)),
        strides=tuple(step for step, _ in steps),
        padding=each(st.tuples(st.integers(-1, 4), st.integers(-1, 4))),
        input_dilation=tuple(spread for _, spread in steps),
        window_dilation=each(st.sampled_from([1, 1, 2])),
        feature_groups=features,
    )
    assume(math.prod(problem.output_shape) > 0 and depthwise_of(problem).fits())
    return problem


@settings(max_examples=80, deadline=None)
@given(problem=problems())
def test_it_is_the_convolution(problem: CanonicalConvolution) -> None:
    x, filters = operands(problem)
    shapes = depthwise_of(problem)
    wanted = by_numpy(x, filters, shapes)
    for level in LEVELS:
        found = depthwise(jnp.asarray(x), jnp.asarray(filters), shapes, level)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("problem", [LAYER, STRIDED, GRADIENT], ids=["layer", "strided", "gradient"])
def test_convolutions_of_several_parts_are_computed_by_it(problem: CanonicalConvolution) -> None:
    shapes = depthwise_of(problem)
    assert shapes.parts() > 1
    x, filters = operands(problem)
    found = jax.jit(lambda x, filters: solve(x, filters, problem))
    assert library.DEPTHWISE_SYMBOL in found.lower(x, filters).as_text()
    np.testing.assert_allclose(found(x, filters), by_numpy(x, filters, shapes), rtol=1e-5, atol=1e-5)


def hashed() -> str:
    """A hash of the bits of some results."""
    made = hashlib.sha256()
    for problem in (LAYER, STRIDED, GRADIENT):
        x, filters = map(jnp.asarray, operands(problem))
        made.update(np.asarray(depthwise(x, filters, depthwise_of(problem))).tobytes())
    return made.hexdigest()


@needs_affinity
def test_the_same_bits_on_one_core_as_on_all() -> None:
    assert hashed_on_one_core("tests.ipu_tf.device.convolution.test_native_depthwise") == hashed()
    assert len({hashed() for _ in range(5)}) == 1


def test_an_image_has_the_same_bits_in_any_batch() -> None:
    x, filters = map(jnp.asarray, operands(LAYER))
    alone = LAYER.but(batch=1)
    for image in range(LAYER.batch):
        one = depthwise(x[image : image + 1], filters, depthwise_of(alone))
        np.testing.assert_array_equal(one[0], depthwise(x, filters, depthwise_of(LAYER))[image])


@pytest.mark.parametrize(
    "problem",
    [
        LAYER.but(in_features=8, out_features=8, feature_groups=8),
        LAYER.but(out_features=80),
        LAYER.but(feature_groups=20),
        LAYER.but(dtype="float16", out_dtype="float16"),
        LAYER.but(window=(MOST_TAPS, 3), padding=((MOST_TAPS, MOST_TAPS), (1, 1))),
        LAYER.but(strides=(2, 2), input_dilation=(2, 2)),
    ],
    ids=["few features", "two filters a feature", "groups", "half precision", "large windows", "strided and dilated"],
)
def test_other_convolutions_have_other_plans(problem: CanonicalConvolution) -> None:
    assert choose(LAYER, frozenset({NATIVE, ONEDNN})).name == "native depthwise"
    assert choose(problem, frozenset({NATIVE, ONEDNN})).name != "native depthwise"


def test_it_is_not_used_without_the_library() -> None:
    x, filters = operands(LAYER)
    with portable.without_native_code():
        program = jax.jit(lambda x, filters: solve(x, filters, LAYER)).lower(x, filters)
    assert library.DEPTHWISE_SYMBOL not in program.as_text()


def test_buffers_of_another_shape_are_refused() -> None:
    """The kernel does not read or write beyond what it is given."""
    native = library.needed()
    x, filters = operands(LAYER)
    shapes = depthwise_of(LAYER)
    result, words = jax.ShapeDtypeStruct(LAYER.output_shape, np.float32), shapes.words(2)
    few, both = (
        dataclasses.replace(shapes, **change).words(2)
        for change in ({"features": 8}, {"strides": (2, 2), "spread": (2, 2)})
    )
    for operand, kernel, made, given_words, message in (
        (x[1:], filters, result, words, "x is not of the shape"),
        (x, filters[1:], result, words, "the filters are not of the shape"),
        (x, filters, jax.ShapeDtypeStruct((3,), np.float32), words, "the result is not of the shape"),
        (x, filters, result, words[1:], "shapes are of another version"),
        (x, filters, result, few, "wanted sizes of at least 1, 16 features"),
        (x, filters, result, both, "at most 128 taps, and steps or a spread"),
    ):
        call = jax.ffi.ffi_call(native.depthwise, made)
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.block_until_ready(call(operand, kernel, shapes=given_words))
