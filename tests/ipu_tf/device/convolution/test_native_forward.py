"""Native convolutions, dense and depthwise: against float64, their bits on any number of cores, where they are used."""

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
from ipu_tf.device.convolution.native.forward_convolution import (
    FEWEST_FEATURES,
    MOST_FLOATS,
    MOST_TAPS,
    dense_convolution,
    depthwise_convolution,
)
from ipu_tf.device.convolution.native_plan import forward_of
from ipu_tf.device.convolution.plan import NATIVE, ONEDNN
from ipu_tf.device.convolution.plans import choose, solve
from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.lowering.jax.jaxpr_plans import planned
from tests.helpers.exact_sums import small_integers
from tests.helpers.library_jit import jit
from tests.helpers.one_core import hashed_on_one_core, needs_affinity
from tests.helpers.plain_convolution import by_definition

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")

LEVELS = range(len(library.LEVELS))
ONES, SAME = (1, 1), ((1, 1), (1, 1))
LAYER = CanonicalConvolution(4, 40, 40, (24, 24), (3, 3), ONES, SAME, ONES, ONES, feature_groups=40)
#: A step of 2, as MobileNetV2 has it, and the gradient of its input.
STRIDED = LAYER.but(batch=16, strides=(2, 2), padding=((0, 1), (0, 1)))
GRADIENT = LAYER.but(batch=16, input=(12, 12), input_dilation=(2, 2), padding=((2, 1), (2, 1)))
DEPTHWISE = [LAYER, STRIDED, GRADIENT]
DENSE = [each.but(feature_groups=1) for each in DEPTHWISE]
#: More filters than are used together.
WIDE = DENSE[0].but(in_features=100, out_features=200, input=(5, 9))
#: Their result, of a million numbers, is written past the caches.
LARGE = [DENSE[0].but(batch=16, in_features=16, out_features=out, input=(40, 41)) for out in (48, 64, 70)]


def operands(problem: CanonicalConvolution) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return (
        random.standard_normal(problem.input_shape, np.float32),
        random.standard_normal(problem.kernel_shape, np.float32),
    )


def computed(x: np.ndarray, filters: np.ndarray, problem: CanonicalConvolution, level: int | None = None) -> jax.Array:
    """By the native kernel."""
    kernel = dense_convolution if problem.groups == 1 else depthwise_convolution
    return kernel(jnp.asarray(x), jnp.asarray(filters), forward_of(problem), level=level)


@st.composite
def problems(draw: st.DrawFn, dense: bool) -> CanonicalConvolution:
    """Small ones of up to three axes: strides or dilated inputs, dilated windows, padding that crops."""
    rank = draw(st.integers(1, 2 if dense else 3))

    def each(values: st.SearchStrategy) -> tuple:
        return tuple(draw(st.lists(values, min_size=rank, max_size=rank)))

    steps = each(st.sampled_from([(1, 1), (2, 1), (3, 1), (1, 2), (1, 3)]))
    features = draw(st.sampled_from([1, 2, 3, 5, 16, 33] if dense else [16, 17, 31, 32, 40, 64, 72, 100]))
    problem = CanonicalConvolution(
        batch=draw(st.integers(1, 3)),
        in_features=features,
        out_features=draw(st.sampled_from([1, 3, 8, 15, 16, 17, 32, 33, 48, 70])) if dense else features,
        input=each(st.integers(1, 14 if rank < 3 else 5)),
        window=each(st.integers(1, 5 if rank < 3 else 3)),
        strides=tuple(step for step, _ in steps),
        padding=each(st.tuples(st.integers(-1, 4), st.integers(-1, 4))),
        input_dilation=tuple(spread for _, spread in steps),
        window_dilation=each(st.sampled_from([1, 1, 2])),
        feature_groups=1 if dense else features,
    )
    assume(math.prod(problem.output_shape) > 0)
    return problem


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "depthwise"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_it_is_the_convolution(dense: bool, data: st.DataObject) -> None:
    problem = data.draw(problems(dense))
    shapes = forward_of(problem)
    assert shapes.is_dense() if dense else shapes.is_depthwise()
    x, filters = small_integers(*problem.input_shape), small_integers(*problem.kernel_shape, seed=1)
    wanted = by_definition(x, filters, problem)
    for level in LEVELS:
        np.testing.assert_array_equal(computed(x, filters, problem, level), wanted)


@settings(max_examples=60, deadline=None)
@given(problem=problems(dense=True), data=st.data())
def test_pooled_it_is_the_largest_of_each_window(problem: CanonicalConvolution, data: st.DataObject) -> None:
    """With bias and ReLU before, or without; what is no whole window is left out, and NaN stays."""
    x, filters = small_integers(*problem.input_shape), small_integers(*problem.kernel_shape, seed=1)
    bias = small_integers(problem.out_features, seed=2) if data.draw(st.booleans()) else None
    if data.draw(st.booleans()):
        x.flat[data.draw(st.integers(0, x.size - 1))] = np.nan
    shapes = forward_of(problem)
    pool = tuple(data.draw(st.integers(1, min(size, 4))) for size in shapes.output)
    sizes = [(size // by, by) for size, by in zip(shapes.output, pool, strict=True)]
    given_x, given_filters = jnp.asarray(x), jnp.asarray(filters)
    given_bias = None if bias is None else jnp.asarray(bias)
    for level in LEVELS:
        plain = np.asarray(dense_convolution(given_x, given_filters, shapes, given_bias, level))
        whole = plain[(slice(None), *(slice(count * by) for count, by in sizes))]
        blocks = whole.reshape(problem.batch, *sum(sizes, ()), problem.out_features)
        wanted = blocks.max(tuple(range(2, 2 * problem.rank + 1, 2)))
        pooled = dataclasses.replace(shapes, pool=pool)
        found = dense_convolution(given_x, given_filters, pooled, given_bias, level)
        np.testing.assert_array_equal(found, wanted)


@settings(max_examples=60, deadline=None)
@given(problems(dense=True))
def test_turned_filters_are_those_of_the_layer(problem: CanonicalConvolution) -> None:
    """Each axis of the window reversed, and the features' axes exchanged: the gradient's filters, never written out."""
    x, filters = small_integers(*problem.input_shape), small_integers(*problem.kernel_shape, seed=1)
    layer = np.ascontiguousarray(np.swapaxes(np.flip(filters, tuple(range(problem.rank))), -1, -2))
    turned = dataclasses.replace(forward_of(problem), turned=True)
    for level in LEVELS:
        found = dense_convolution(jnp.asarray(x), jnp.asarray(layer), turned, level=level)
        np.testing.assert_array_equal(found, computed(x, filters, problem, level))


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("images", [4, 64])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_gradients_of_inputs_read_the_layers_filters(window: int, images: int, strides: tuple[int, int]) -> None:
    """Of all images of 24 x 24, and of few small ones, by a product of matrices."""
    random = np.random.default_rng(0)
    shapes = [(images, 24, 24, 64)] * 2 + [(window, window, 64, 64)]
    x, g, filters = (jnp.asarray(random.standard_normal(shape, np.float32)) for shape in shapes)

    def layer(x: jax.Array) -> jax.Array:
        names = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, filters, strides, "SAME", dimension_numbers=names)

    def gradient(x: jax.Array, g: jax.Array) -> list[jax.Array]:
        return list(jax.vjp(layer, x)[1](g[:, :: strides[0], :: strides[1]]))

    native = jit(planned(jax.make_jaxpr(gradient)(x, g)))
    lowered = native.lower(x, g).as_text()
    assert library.DENSE_CONVOLUTION in lowered or library.MATRIX_PRODUCT in lowered
    assert "stablehlo.reverse" not in lowered and "stablehlo.transpose" not in lowered
    np.testing.assert_allclose(native(x, g)[0], jit(gradient)(x, g)[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("problem", [*(DENSE[0].but(out_features=n) for n in (1, 16, 40, 64, 70)), LARGE[0]], ids=str)
def test_bias_and_relu_in_the_same_call(problem: CanonicalConvolution, level: int) -> None:
    features = problem.out_features
    x, filters = operands(problem)
    bias = np.random.default_rng(1).standard_normal(features, np.float32)
    bias[0], x[1, 0, 0, 0] = -100, np.nan
    total = np.asarray(computed(x, filters, problem, level)) + bias
    fused = dense_convolution(jnp.asarray(x), jnp.asarray(filters), forward_of(problem), jnp.asarray(bias), level)
    np.testing.assert_array_equal(fused, jax.lax.max(total, np.float32(0)))
    assert np.isnan(fused).any() and not np.isnan(fused[0]).any()


@pytest.mark.parametrize("problem", [*DEPTHWISE, *DENSE, WIDE, *LARGE], ids=str)
def test_convolutions_of_several_parts_are_computed_by_it(problem: CanonicalConvolution) -> None:
    shapes = forward_of(problem)
    assert shapes.parts() > 1
    x, filters = operands(problem)
    found = jit(lambda x, filters: solve(x, filters, problem))
    handler = library.DENSE_CONVOLUTION if problem.groups == 1 else library.DEPTHWISE_CONVOLUTION
    assert handler in found.lower(x, filters).as_text()
    # An error of a sum is relative to its terms' magnitudes.
    bound = 1e-6 * by_definition(abs(x), abs(filters), problem)
    assert np.all(abs(found(x, filters) - by_definition(x, filters, problem)) <= bound)


def hashed() -> str:
    """A hash of the bits of some results."""
    made = hashlib.sha256()
    for problem in (*DEPTHWISE, *DENSE, WIDE):
        made.update(np.asarray(computed(*operands(problem), problem)).tobytes())
    return made.hexdigest()


@needs_affinity
def test_the_same_bits_on_one_core_as_on_all() -> None:
    assert hashed_on_one_core("tests.ipu_tf.device.convolution.test_native_forward") == hashed()
    assert len({hashed() for _ in range(5)}) == 1


@pytest.mark.parametrize("problem", [LAYER, DENSE[0], *LARGE], ids=str)
def test_an_image_has_the_same_bits_in_any_batch(problem: CanonicalConvolution) -> None:
    x, filters = operands(problem)
    together = computed(x, filters, problem)
    for image in range(problem.batch):
        alone = computed(x[image : image + 1], filters, problem.but(batch=1))
        np.testing.assert_array_equal(alone[0], together[image])


@pytest.mark.parametrize(
    "problem",
    [
        LAYER.but(in_features=8, out_features=8, feature_groups=8),
        LAYER.but(out_features=80),
        LAYER.but(feature_groups=20),
        LAYER.but(dtype="float16", out_dtype="float16"),
        LAYER.but(window=(MOST_TAPS, 3), padding=((MOST_TAPS, MOST_TAPS), (1, 1))),
        LAYER.but(strides=(2, 2), input_dilation=(2, 2)),
        DENSE[0].but(input=(3, MOST_FLOATS)),
        DENSE[0].but(input=(MOST_TAPS + 9, 3), window_dilation=(MOST_TAPS // 2, 1)),
        DENSE[0].but(strides=(2, 2), input_dilation=(2, 2)),
    ],
    ids=[
        "few features",
        "two filters a feature",
        "groups",
        "half precision",
        "large windows",
        "strided and dilated",
        "dense, long lines",
        "dense, lines far from each other",
        "dense, strided and dilated",
    ],
)
def test_other_convolutions_have_other_plans(problem: CanonicalConvolution) -> None:
    calls = frozenset({NATIVE, ONEDNN})
    assert [choose(each, calls).name for each in (LAYER, DENSE[0])] == ["native depthwise", "native dense"]
    assert choose(problem, calls).name not in ("native depthwise", "native dense")


@pytest.mark.parametrize("problem", [LAYER, DENSE[0]], ids=["depthwise", "dense"])
def test_it_is_not_used_without_the_library(problem: CanonicalConvolution) -> None:
    x, filters = operands(problem)
    with portable.without_native_code():
        program = jit(lambda x, filters: solve(x, filters, problem)).lower(x, filters)
    assert "ipu_tf_" not in program.as_text()


def test_depthwise_buffers_of_another_shape_are_refused() -> None:
    """The kernel does not read or write beyond what it is given."""
    target = library.needed().target(library.DEPTHWISE_CONVOLUTION)
    x, filters = operands(LAYER)
    shapes = forward_of(LAYER)
    result, words = shapes.result(), shapes.words(2)
    few, both = (
        dataclasses.replace(shapes, **change).words(2)
        for change in (
            {"in_features": FEWEST_FEATURES - 1, "out_features": FEWEST_FEATURES - 1},
            {"strides": (2, 2), "spread": (2, 2)},
        )
    )
    pooled = dataclasses.replace(shapes, pool=(2, 2)).words(2)
    for operand, kernel, made, given_words, message in (
        (x[1:], filters, result, words, "x is not of the shape"),
        (x, filters[1:], result, words, "the filters are not of the shape"),
        (x, filters, jax.ShapeDtypeStruct((3,), np.float32), words, "the result is not of the shape"),
        (x, filters, result, words[1:], "shapes are of another version"),
        (x, filters, result, few, "wanted sizes of at least 1, 16 features"),
        (x, filters, result, pooled, "wanted sizes of at least 1, 16 features"),
        (x, filters, result, both, "at most 128 taps, and steps or a spread"),
    ):
        call = jax.ffi.ffi_call(target, made)
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.block_until_ready(call(operand, kernel, shapes=given_words))


def test_dense_buffers_of_another_shape_are_refused() -> None:
    target = library.needed().target(library.DENSE_CONVOLUTION)
    x, filters = operands(DENSE[0])
    shapes = forward_of(DENSE[0])
    room, short = (jax.ShapeDtypeStruct((size,), np.float32) for size in (shapes.packed(), 3))
    result, words = shapes.result(), shapes.words(2)
    long = dataclasses.replace(shapes, input=(3, MOST_FLOATS)).words(2)
    deep = forward_of(CanonicalConvolution(1, 4, 8, (3, 3, 3), (1, 1, 1), (1,) * 3, ((0, 0),) * 3, (1,) * 3, (1,) * 3))
    far = dataclasses.replace(shapes, dilation=(MOST_TAPS // 2, 1)).words(2)
    for operands_given, made, given_words, message in (
        ((x[1:], filters), (result, room), words, "x is not of the shape"),
        ((x, filters[1:]), (result, room), words, "the filters are not of the shape"),
        ((x, filters, x[0, 0, 0, 1:]), (result, room), words, "the bias is not of the shape"),
        ((x, filters), (short, room), words, "the result is not of the shape"),
        ((x, filters), (result, short), words, "there is too little room"),
        ((x, filters), (result, room), words[1:], "shapes are of another version"),
        ((x, filters), (result, room), long, "wanted short lines of two axes"),
        ((x, filters), (result, room), far, "wanted short lines of two axes"),
        ((x, filters), (result, room), deep.words(2), "wanted short lines of two axes"),
    ):
        call = jax.ffi.ffi_call(target, made)
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            jax.block_until_ready(call(*operands_given, shapes=given_words))


@pytest.mark.parametrize(
    ("pool", "wide", "message"),
    [
        ((2, 1), 40, "the result is not of the shape"),
        ((25, 1), 40, "wanted sizes of at least 1"),
        ((24, 1), 60, "wanted short lines before pooling"),
    ],
)
def test_pools_of_another_shape_are_refused(pool: tuple[int, int], wide: int, message: str) -> None:
    problem = DENSE[0].but(out_features=wide)
    shapes = forward_of(problem)
    results = [shapes.result(), jax.ShapeDtypeStruct((shapes.packed(),), np.float32)]
    call = jax.ffi.ffi_call(library.needed().target(library.DENSE_CONVOLUTION), results)
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        jax.block_until_ready(call(*operands(problem), shapes=dataclasses.replace(shapes, pool=pool).words(2)))
