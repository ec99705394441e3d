"""Zeros around an image are padding of the convolution of it, in the layer and in its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

from ipu_tf.device.convolution.problem import CanonicalConvolution
from ipu_tf.device.convolution.recorded import record_convolutions
from ipu_tf.lowering.importer.interpreter import Interpreter
from tests.helpers.library_jit import jit
from tests.helpers.lowering_parity import NoFeeds, lowered

RNG = np.random.default_rng(0)
IMAGES, KERNEL, DEPTHWISE = (
    RNG.normal(size=shape).astype(np.float32) for shape in ((2, 9, 10, 16), (3, 3, 16, 8), (3, 3, 16, 1))
)
SIZE = IMAGES.shape[1:3]
Layer = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def padded(x: tf.Tensor, rows: tuple[int, int] = (0, 1), columns: tuple[int, int] = (2, 1)) -> tf.Tensor:
    return tf.pad(x, [(0, 0), rows, columns, (0, 0)])


def layer(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(padded(x), kernel, 2, "VALID")


def in_a_layer_that_pads(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(padded(x), kernel, 1, "SAME")


def with_dilated_windows(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(padded(x), kernel, 1, "VALID", dilations=2)


def depthwise(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.depthwise_conv2d(padded(x), kernel, (1, 2, 2, 1), "VALID")


def uneven(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """A step leaves a part of the padding unseen."""
    return tf.nn.conv2d(padded(x, (0, 2), (0, 1)), kernel, 2, "VALID")


def in_half_precision(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.cast(layer(tf.cast(x, tf.float16), tf.cast(kernel, tf.float16)), tf.float32)


def in_bfloat16(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.cast(layer(tf.cast(x, tf.bfloat16), tf.cast(kernel, tf.bfloat16)), tf.float32)


def with_bias_and_relu(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.relu(tf.nn.bias_add(layer(x, kernel), tf.linspace(-1.0, 1.0, 8)))


def with_ones(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(tf.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=1), kernel, 2, "VALID")


def with_more_features(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(tf.pad(x[..., :13], [(0, 0), (1, 1), (1, 1), (1, 2)]), kernel, 2, "VALID")


def with_more_images(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(tf.pad(x, [(0, 1), (1, 1), (1, 1), (0, 0)]), kernel, 2, "VALID")


def sliced(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, kernel, 1, "SAME")[:, 1:, :-1]


def sliced_deeper(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """More is cut off than the layer pads."""
    return tf.nn.conv2d(x, kernel, 1, "SAME")[:, 2:]


def sliced_features(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, kernel, 1, "SAME")[:, 1:, :, :3]


def sliced_images(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, kernel, 1, "SAME")[1:, 1:]


def sliced_in_steps(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, kernel, 1, "SAME")[:, 1::2]


def sliced_after_a_stride(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, kernel, 2, "SAME")[:, 1:]


def sliced_beside_another_use(x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    result = tf.nn.conv2d(x, kernel, 1, "SAME")
    return result[:, 1:] + tf.reduce_sum(result)


def trained(function: Layer) -> Callable[[tf.Tensor, tf.Tensor], list[tf.Tensor]]:
    """The layer and all its gradients."""

    def run(x: tf.Tensor, kernel: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            result = function(x, kernel)
            loss = tf.reduce_sum(result * result)
        return [result, *tape.gradient(loss, [x, kernel])]

    return run


def imported(function: Callable[..., Any], *arrays: np.ndarray) -> tuple[list[np.ndarray], list[CanonicalConvolution]]:
    """Returns the results, and the convolutions that were traced: those whose result nothing uses too."""
    module = lowered(function, *map(tf.constant, arrays))

    def run(*given: jax.Array) -> list[jax.Array]:
        return Interpreter(module, NoFeeds()).run_block(module.main, given)

    with jax.enable_x64(True), record_convolutions() as recorded:
        program = jit(run).lower(*arrays).compile()
    return [np.asarray(each) for each in program(*arrays)], list(recorded.values())


def kernel_of(function: Layer) -> np.ndarray:
    return DEPTHWISE if function is depthwise else KERNEL


NARROW = [in_half_precision, in_bfloat16]
FOLDED = [layer, in_a_layer_that_pads, with_dilated_windows, depthwise, uneven, *NARROW, with_bias_and_relu]
OTHERS = [with_ones, with_more_features, with_more_images]
SLICED = [sliced]
OTHER_SLICES = [
    sliced_deeper,
    sliced_features,
    sliced_images,
    sliced_in_steps,
    sliced_after_a_stride,
    sliced_beside_another_use,
]


def name(function: Layer) -> str:
    return function.__name__


@pytest.mark.parametrize("function", [*FOLDED, *OTHERS, *SLICED, *OTHER_SLICES], ids=name)
def test_layers_and_gradients_are_those_of_tensorflow(function: Layer) -> None:
    arrays = (IMAGES, kernel_of(function))
    found, _ = imported(trained(function), *arrays)
    stock = trained(function)
    if function is with_dilated_windows:  # whose gradients TensorFlow's kernels refuse without oneDNN: without AVX-512
        stock = tf.function(stock, jit_compile=True, autograph=False)
    wanted = stock(*map(tf.constant, arrays))
    rtol = {"in_half_precision": 1e-2, "in_bfloat16": 5e-2}.get(name(function), 1e-4)
    for result, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(result, right, rtol=rtol, atol=rtol * np.abs(right).max())


@pytest.mark.parametrize("function", FOLDED, ids=name)
def test_zeros_around_an_image_are_padding_of_the_convolution(function: Layer) -> None:
    _, convolutions = imported(trained(function), IMAGES, kernel_of(function))
    filters, *others = sorted(convolutions, key=lambda each: not (each.leading_contraction or each.batch_groups > 1))
    *layers, gradient = others
    assert filters.input == SIZE
    assert SIZE in [each.input for each in layers]
    if function is not in_a_layer_that_pads:  # whose gradient would have to be padded by a negative number
        assert gradient.output == SIZE


@pytest.mark.parametrize("function", OTHERS, ids=name)
def test_other_padding_stays(function: Layer) -> None:
    _, convolutions = imported(function, IMAGES, KERNEL)
    assert [each.input for each in convolutions] == [(11, 12)]


@pytest.mark.parametrize("function", SLICED, ids=name)
def test_a_slice_makes_a_convolution_pad_less(function: Layer) -> None:
    [result], convolutions = imported(function, IMAGES, KERNEL)
    assert [each.output for each in convolutions] == [SIZE, result.shape[1:3]]


@pytest.mark.parametrize("function", OTHER_SLICES, ids=name)
def test_other_slices_stay(function: Layer) -> None:
    _, convolutions = imported(function, IMAGES, KERNEL)
    assert len(convolutions) == 1
