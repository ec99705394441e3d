"""A convolution with bias and ReLU, and max pooling, is one call of the native kernel: the same bits, NaN included."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
from jax import lax

from ipu_tf.device import portable
from ipu_tf.device.convolution.convolve import ConvLayout, convolution_bias_relu
from ipu_tf.device.convolution.native import library
from ipu_tf.lowering.importer.interpreter import Interpreter
from ipu_tf.lowering.stablehlo.module import Module, parse
from tests.helpers.library_jit import jit
from tests.helpers.lowering_parity import NoFeeds, lowered

pytestmark = pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")
RNG = np.random.default_rng(0)
IMAGES, KERNEL, BIAS = (
    RNG.normal(size=shape).astype(np.float32) for shape in ((64, 16, 16, 16), (3, 3, 16, 32), (32,))
)
WINDOW: dict[str, Any] = {
    "window_strides": (1, 1),
    "padding": ((1, 1), (1, 1)),
    "lhs_dilation": (1, 1),
    "rhs_dilation": (1, 1),
    "window_reversal": (False, False),
    "dimension_numbers": ConvLayout.canonical(2),
}


def layer(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias))


def trained(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> list[tf.Tensor]:
    """The layer and all its gradients."""
    with tf.GradientTape() as tape:
        tape.watch([x, kernel, bias])
        result = layer(x, kernel, bias)
        loss = tf.reduce_sum(result * result)
    return [result, *tape.gradient(loss, [x, kernel, bias])]


def both(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> list[tf.Tensor]:
    """The sum before the ReLU is used too."""
    total = tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias)
    return [tf.nn.relu(total), total]


def clipped(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """At least one, not zero."""
    return tf.maximum(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), bias), 1.0)


def on_positions(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """A sum with one number for each row is no bias."""
    return tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "SAME") + bias[:16, None, None])


def compiled(function: Callable[..., Any], *arrays: Any) -> Any:
    """The function as the importer traces it, compiled by XLA."""
    return compiled_module(lowered(function, *map(tf.constant, arrays)), *arrays)


def compiled_module(module: Module, *arrays: Any) -> Any:
    """A StableHLO program as the importer traces it, compiled by XLA."""

    def run(*given: jax.Array) -> list[jax.Array]:
        return Interpreter(module, NoFeeds()).run_block(module.main, given)

    program = jit(run)
    with jax.enable_x64(True):
        return program.lower(*arrays).compile()


def is_fused(program: Any) -> bool:
    """Returns whether a compiled program has a convolution with three operands: image, kernel and bias."""
    calls = [line for line in program.as_text().splitlines() if f"{library.DENSE_CONVOLUTION}_" in line]
    return any(re.search(r"custom-call\([^,]*,[^,]*,[^,]*\)", line) for line in calls)


@functools.cache
def fused() -> Any:
    return compiled(layer, IMAGES, KERNEL, BIAS)


@functools.cache
def in_steps() -> Any:
    return compiled(both, IMAGES, KERNEL, BIAS)


def by_numpy(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The layer in float64."""
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = (padded[:, i : i + 16, j : j + 16] @ kernel[i, j].astype(np.float64) for i, j in np.ndindex(3, 3))
    return np.maximum(sum(taps) + bias, 0)


def test_the_layer_is_one_call() -> None:
    program = fused()
    assert is_fused(program)
    [result] = program(IMAGES, KERNEL, BIAS)
    wanted = by_numpy(IMAGES, KERNEL, BIAS)
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(result, layer(IMAGES, KERNEL, BIAS), rtol=1e-5, atol=1e-5)


def test_gradients_are_those_of_tensorflow() -> None:
    program = compiled(trained, IMAGES, KERNEL, BIAS)
    assert is_fused(program)
    wanted = trained(*map(tf.constant, (IMAGES, KERNEL, BIAS)))
    for result, right in zip(program(IMAGES, KERNEL, BIAS), wanted, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-5 * np.abs(right).max())


@pytest.mark.parametrize("function", [both, clipped, on_positions], ids=lambda function: function.__name__)
def test_other_sums_and_maxima_stay_as_they_are(function: Callable[..., Any]) -> None:
    program = compiled(function, IMAGES, KERNEL, BIAS)
    assert not is_fused(program)
    wanted = tf.nest.flatten(function(IMAGES, KERNEL, BIAS))
    for result, right in zip(program(IMAGES, KERNEL, BIAS), wanted, strict=True):
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [1.0, np.nan, np.inf, 1e38])
@pytest.mark.parametrize("place", ["images", "kernel", "bias"])
def test_the_same_bits_as_in_three_steps(place: str, value: float) -> None:
    """NaN and overflow included."""
    arrays = {"images": IMAGES.copy(), "kernel": KERNEL.copy(), "bias": BIAS.copy()}
    arrays[place].flat[::7] = value
    [result] = fused()(*arrays.values())
    steps, _ = in_steps()(*arrays.values())
    np.testing.assert_array_equal(result, steps)
    assert np.isnan(result).any() == np.isnan(value) or value > 1


def pooled(*window: int, padding: str = "VALID", strides: Any = None, also: str = "") -> Callable[..., Any]:
    """The layer with max pooling after it; and what else the program computes."""

    def program(x: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor) -> Any:
        result = layer(x, kernel, bias)
        made = tf.nn.max_pool2d(result, window, strides or window, padding)
        if also == "gradients":
            return tf.gradients(tf.reduce_sum(made * made), [x, kernel, bias])
        return [made, result] if also == "the layer" else made

    return program


def is_pooled(program: Any) -> bool:
    """Returns whether nothing but one call is left of a program."""
    return is_fused(program) and not re.search(r"reduce-window|maximum|fusion", program.as_text())


@pytest.mark.parametrize("window", [(2, 2), (3, 3), (1, 4), (5, 1), (16, 16), (7, 3)], ids=str)
@pytest.mark.parametrize("value", [1.0, np.nan, np.inf])
def test_max_pooling_is_part_of_the_call(window: tuple[int, int], value: float) -> None:
    """Windows that are not whole are left out. NaN stays, and is in the result of a layer that is not pooled too."""
    images = IMAGES.copy()
    images.flat[::501] = value
    program = compiled(pooled(*window), images, KERNEL, BIAS)
    assert is_pooled(program)
    [result], [plain] = program(images, KERNEL, BIAS), fused()(images, KERNEL, BIAS)
    rows, columns = (16 // each for each in window)
    whole = np.asarray(plain)[:, : rows * window[0], : columns * window[1]]
    blocks = whole.reshape(len(images), rows, window[0], columns, window[1], -1)
    np.testing.assert_array_equal(result, blocks.max((2, 4)))


OTHER_POOLS = {
    "overlapping": pooled(3, 3, strides=(2, 2)),
    "apart": pooled(2, 2, strides=(3, 3)),
    "padded": pooled(3, 3, padding="SAME"),
    "of a layer that is used": pooled(2, 2, also="the layer"),
    "with gradients": pooled(2, 2, also="gradients"),
    "of the sum": lambda x, k, b: tf.nn.relu(
        tf.nn.max_pool2d(tf.nn.bias_add(tf.nn.conv2d(x, k, 1, "SAME"), b), 2, 2, "VALID")
    ),
    "of two features": lambda x, k, b: tf.nn.max_pool3d(
        layer(x, k, b)[..., None], (1, 1, 1, 2, 1), (1, 1, 1, 2, 1), "VALID"
    ),
    "the average": lambda x, k, b: tf.nn.avg_pool2d(layer(x, k, b), 2, 2, "VALID"),
}


@pytest.mark.parametrize("name", OTHER_POOLS)
def test_other_pools_are_computed_after_the_layer(name: str) -> None:
    function = tf.function(OTHER_POOLS[name])
    program = compiled(function, IMAGES, KERNEL, BIAS)
    assert not is_pooled(program)
    for result, right in zip(
        program(IMAGES, KERNEL, BIAS), tf.nest.flatten(function(IMAGES, KERNEL, BIAS)), strict=True
    ):
        np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-5 * np.abs(right).max())


@pytest.mark.parametrize(
    ("start", "is_part"), [(-np.inf, True), (-1.0, True), (0.0, True), (5.0, False), (np.nan, False)]
)
def test_pools_may_begin_with_what_is_not_above_a_layers_least_result(start: float, is_part: bool) -> None:
    """Others, which TensorFlow does not make, are computed after the layer."""

    def program(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
        layers = ("NHWC", "HWIO", "NHWC")
        total = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layers)
        result = lax.max(total + lax.broadcast_in_dim(bias, total.shape, (3,)), jnp.zeros_like(total))
        return lax.reduce_window(result, np.float32(start), lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")

    wanted = jit(program)(IMAGES, KERNEL, BIAS)
    text = jit(program).lower(IMAGES, KERNEL, BIAS).as_text()
    made = compiled_module(parse(text), IMAGES, KERNEL, BIAS)
    assert is_pooled(made) == is_part
    np.testing.assert_allclose(made(IMAGES, KERNEL, BIAS)[0], wanted, rtol=1e-5, atol=1e-5)


def test_a_line_that_is_too_long_before_pooling_is_pooled_after_the_layer() -> None:
    """The kernel holds 2^15 floats of a thread's lines."""
    images, kernel, bias = (np.ones(shape, np.float32) for shape in ((2, 16, 128, 4), (1, 1, 4, 300), (300,)))
    program = compiled(pooled(2, 2), images, kernel, bias)
    assert not is_pooled(program)
    np.testing.assert_array_equal(program(images, kernel, bias)[0], np.full((2, 8, 64, 300), 5))


def test_programs_without_native_code_do_not_fuse() -> None:
    with portable.without_native_code():
        assert convolution_bias_relu(*map(jnp.asarray, (IMAGES, KERNEL, BIAS)), **WINDOW) is None


def test_over_replicas() -> None:
    """`shard_map` and `vmap` have rules of their own for conditions."""

    def one(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
        result = convolution_bias_relu(x, kernel, bias, **WINDOW)
        assert result is not None
        return result

    images = jnp.stack([IMAGES, IMAGES[::-1]])
    expected = np.stack([by_numpy(each, KERNEL, BIAS) for each in np.asarray(images)])
    mapped = jit(jax.vmap(one, in_axes=(0, None, None)))(images, KERNEL, BIAS)
    np.testing.assert_allclose(mapped, expected, rtol=1e-5, atol=1e-5)
    mesh = jax.make_mesh((1,), ("replica",), axis_types=(jax.sharding.AxisType.Auto,))
    part, whole = jax.sharding.PartitionSpec("replica"), jax.sharding.PartitionSpec()
    sharded = jax.shard_map(
        lambda x, k, b: one(x[0], k, b)[None], mesh=mesh, in_specs=(part, whole, whole), out_specs=part
    )
    np.testing.assert_allclose(jit(sharded)(images[:1], KERNEL, BIAS), expected[:1], rtol=1e-5, atol=1e-5)


def test_small_results_are_fused_too() -> None:
    program = compiled(layer, IMAGES[:1], KERNEL, BIAS)
    assert is_fused(program)
    np.testing.assert_allclose(
        program(IMAGES[:1], KERNEL, BIAS)[0], layer(IMAGES[:1], KERNEL, BIAS), rtol=1e-5, atol=1e-5
    )


def test_grouped_convolutions_are_not_fused() -> None:
    """They have another plan."""
    kernel = KERNEL[:, :, :4]
    program = compiled(layer, IMAGES, kernel, BIAS)
    assert not is_fused(program)
    np.testing.assert_allclose(program(IMAGES, kernel, BIAS)[0], layer(IMAGES, kernel, BIAS), rtol=1e-5, atol=1e-5)
