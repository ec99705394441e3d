"""Training step of the reference CNN in JAX, by `jax.grad` and by hand with exchangeable operations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.convolution.convolve import ConvLayout, convolution
from ipu_tf.device.convolution.pooling import reduce_window, select_and_scatter

Params = list[tuple[jax.Array, jax.Array]]
BATCH, RATE, KEPT = 64, 0.01, 0.75
SAME, VALID = 1, 0
#: (input size, features in, features out, padding, whether pooled) of each convolution; all windows are 3 x 3.
LAYERS = (
    (32, 3, 32, SAME, False),
    (32, 32, 32, VALID, True),
    (15, 32, 64, SAME, False),
    (15, 64, 32, VALID, True),
)
DENSE = ((1152, 512), (512, 10))
POOL: dict[str, Any] = {
    "window_dimensions": (1, 2, 2, 1),
    "window_strides": (1, 2, 2, 1),
    "padding": ((0, 0),) * 4,
}
#: The layouts TensorFlow lowers to: forward, gradient of the input, gradient of the filter.
FORWARD = ConvLayout.canonical(2)
INPUT = dataclasses.replace(FORWARD, kernel_input_feature=3, kernel_output_feature=2)
FILTER = ConvLayout(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))

Convolve = Callable[[jax.Array, jax.Array, ConvLayout, int, bool], jax.Array]


@dataclasses.dataclass(frozen=True)
class Library:
    """Set of operations that a step uses."""

    convolve: Convolve
    pool: Callable[[jax.Array], jax.Array]
    pool_gradient: Callable[[jax.Array, jax.Array], jax.Array]


def our_convolution(lhs: jax.Array, rhs: jax.Array, layout: ConvLayout, pad: int, flip: bool) -> jax.Array:
    """The device's convolution with stride 1."""
    return convolution(lhs, rhs, **window(pad), window_reversal=(flip, flip), dimension_numbers=layout, platform="cpu")


def window(pad: int) -> dict[str, Any]:
    """The window of a convolution with stride 1."""
    ones = (1, 1)
    return {"window_strides": ones, "padding": ((pad, pad),) * 2, "lhs_dilation": ones, "rhs_dilation": ones}


def lax_convolution(lhs: jax.Array, rhs: jax.Array, layout: ConvLayout, pad: int, flip: bool) -> jax.Array:
    """The same convolution by `lax`, in a given layout."""
    rhs = lax.rev(rhs, layout.kernel_spatial) if flip else rhs
    numbers = lax.ConvDimensionNumbers(
        (layout.input_batch, layout.input_feature, *layout.input_spatial),
        (layout.kernel_output_feature, layout.kernel_input_feature, *layout.kernel_spatial),
        (layout.output_batch, layout.output_feature, *layout.output_spatial),
    )
    return lax.conv_general_dilated(lhs, rhs, (1, 1), ((pad, pad),) * 2, dimension_numbers=numbers)


def lax_pool(x: jax.Array) -> jax.Array:
    """Max pooling by `lax`."""
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


OURS = Library(
    our_convolution,
    lambda x: reduce_window(x, jnp.float32(-jnp.inf), "max", **POOL),
    lambda x, g: select_and_scatter(x, g, jnp.float32(0), **POOL),
)
LAX = Library(lax_convolution, lax_pool, lambda x, g: jax.vjp(lax_pool, x)[1](g)[0])


def first_params() -> Params:
    """Weights drawn for relu, biases of zero."""
    random = np.random.default_rng(0)
    shapes = [(3, 3, i, o) for _, i, o, *_ in LAYERS] + list(DENSE)
    scaled = (random.standard_normal(s, np.float32) * np.float32(2 / np.prod(s[:-1])) ** 0.5 for s in shapes)
    return [(jnp.asarray(w), jnp.zeros(w.shape[-1], jnp.float32)) for w in scaled]


def masks(key: jax.Array) -> list[jax.Array]:
    """Returns dropout masks for the first pooling and the hidden layer."""
    keys = jax.random.split(key)
    shapes = ((BATCH, 15, 15, 32), (BATCH, 512))
    return [jax.random.bernoulli(k, KEPT, shape) / KEPT for k, shape in zip(keys, shapes, strict=True)]


def loss_of(params: Params, images: jax.Array, labels: jax.Array, key: jax.Array) -> jax.Array:
    """The loss as one writes it in JAX."""
    x, kept = images, masks(key)
    for (weights, bias), (*_, pad, pooled) in zip(params, LAYERS, strict=False):
        x = jax.nn.relu(lax_convolution(x, weights, FORWARD, pad, False) + bias)
        x = lax_pool(x) if pooled else x
        x = x * kept[0] if x.shape == kept[0].shape else x
    hidden = jax.nn.relu(x.reshape(BATCH, -1) @ params[4][0] + params[4][1]) * kept[1]
    logits = jax.nn.log_softmax(hidden @ params[5][0] + params[5][1])
    return -jnp.mean(jnp.sum(labels * logits, axis=-1))


def step_by_grad(params: Params, images: jax.Array, labels: jax.Array, key: jax.Array) -> Params:
    """A training step by `jax.grad`."""
    gradients = jax.grad(loss_of)(params, images, labels, key)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradients)


def step_by_hand(library: Library, params: Params, images: jax.Array, labels: jax.Array, key: jax.Array) -> Params:
    """A training step with its gradients written out by hand."""
    kept, inputs, outputs, x = masks(key), [], [], images
    for (weights, bias), (*_, pad, pooled) in zip(params, LAYERS, strict=False):
        inputs.append(x)
        outputs.append(jax.nn.relu(library.convolve(x, weights, FORWARD, pad, False) + bias))
        x = library.pool(outputs[-1]) if pooled else outputs[-1]
        x = x * kept[0] if x.shape == kept[0].shape else x
    gradients, gradient = dense_gradients(params, x.reshape(BATCH, -1), labels, kept[1])
    gradient = gradient.reshape(x.shape)
    for number in reversed(range(len(LAYERS))):
        here, gradient = layer_gradients(library, number, params, inputs, outputs, gradient, kept[0])
        gradients.insert(0, here)
    return jax.tree.map(lambda p, g: p - RATE * g, params, gradients)


def dense_gradients(params: Params, x: jax.Array, labels: jax.Array, kept: jax.Array) -> tuple[Params, jax.Array]:
    """The gradients of the two dense layers, and of their input."""
    (w1, b1), (w2, b2) = params[4:]
    hidden = jax.nn.relu(x @ w1 + b1)
    logits = (jax.nn.softmax(hidden * kept @ w2 + b2) - labels) / BATCH
    back = jnp.where(hidden > 0, logits @ w2.T * kept, 0)
    return [(x.T @ back, back.sum(0)), ((hidden * kept).T @ logits, logits.sum(0))], back @ w1.T


def layer_gradients(
    library: Library,
    number: int,
    params: Params,
    inputs: Sequence[jax.Array],
    outputs: Sequence[jax.Array],
    gradient: jax.Array,
    kept: jax.Array,
) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
    """The gradients of a convolution's weights and bias, and of its input."""
    *_, pad, pooled = LAYERS[number]
    gradient = gradient * kept if gradient.shape == kept.shape and pooled else gradient
    gradient = library.pool_gradient(outputs[number], gradient) if pooled else gradient
    gradient = jnp.where(outputs[number] > 0, gradient, 0)
    weights = library.convolve(inputs[number], gradient, FILTER, pad, False)
    below = library.convolve(gradient, params[number][0], INPUT, 2 - pad, True) if number else gradient
    return (weights, gradient.sum((0, 1, 2))), below


def batch() -> tuple[jax.Array, jax.Array, jax.Array]:
    """Random images and labels, and a key."""
    random = np.random.default_rng(1)
    labels = np.eye(10, dtype=np.float32)[random.integers(0, 10, BATCH)]
    images = random.random((BATCH, 32, 32, 3), np.float32)
    return jnp.asarray(images), jnp.asarray(labels), jax.random.key(0, impl="rbg")
