"""Benchmark networks in hand-written JAX, computing what their Keras counterparts compute.

Each is two functions: `<name>_weights(draw, workload)`, and `<name>(p, stats, key, x)` that gives the last hidden layer
and the new moving averages of its batch normalisations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workload import CLASSES, MOBILENET_BLOCKS, Workload

Draw = Callable[..., jax.Array]
"""Weights of a shape, Glorot's uniform ones."""


def glorot(seed: int) -> Draw:
    """Draws weights one after the other."""
    random = np.random.default_rng(seed)

    def draw(*shape: int) -> jax.Array:
        field = int(np.prod(shape[:-2]))
        limit = np.sqrt(6.0 / (field * (shape[-2] + shape[-1])))
        return jnp.asarray(random.uniform(-limit, limit, shape).astype(np.float32))

    return draw


def weights_of(workload: Workload) -> Any:
    """Returns the initial weights."""
    draw = glorot(0)
    weights, _, features = NETWORKS[workload.model]
    return {"body": weights(draw, workload), "head": _linear(draw, features, CLASSES)}


def forward(workload: Workload) -> Callable[..., tuple[jax.Array, list[Any]]]:
    """`(params, stats, key, samples) -> (logits, stats)` of a workload's network."""
    body = NETWORKS[workload.model][1]

    def logits(params: Any, stats: list[Any], key: jax.Array, samples: jax.Array) -> tuple[jax.Array, list[Any]]:
        hidden, stats = body(params["body"], stats, key, samples)
        return _affine(hidden, params["head"]), stats

    return logits


def small_weights(draw: Draw, workload: Workload) -> Any:
    """One hidden layer of 64."""
    return _linear(draw, 64, 64)


def dense_weights(draw: Draw, workload: Workload) -> Any:
    """One hidden layer of 128."""
    return _linear(draw, 784, 128)


def dense(p: Any, stats: list[Any], key: jax.Array, x: jax.Array) -> tuple[jax.Array, list[Any]]:
    """One hidden layer."""
    return jax.nn.relu(_affine(x, p)), stats


def cnn_weights(draw: Draw, workload: Workload) -> Any:
    """Four convolutions and a hidden layer."""
    shapes = ((3, 3, 3, 32), (3, 3, 32, 32), (3, 3, 32, 64), (3, 3, 64, 32), (1152, 512))
    return [(draw(*shape), jnp.zeros(shape[-1])) for shape in shapes]


def cnn(p: Any, stats: list[Any], key: jax.Array, x: jax.Array) -> tuple[jax.Array, list[Any]]:
    """The reference CNN for CIFAR-10."""
    keys = jax.random.split(key, 3)
    for i in (0, 2):
        x = jax.nn.relu(_convolution(x, p[i][0]) + p[i][1])
        x = jax.nn.relu(_convolution(x, p[i + 1][0], padding="VALID") + p[i + 1][1])
        x = _dropout(keys[i // 2], _pooled(x), 0.25)
    return _dropout(keys[2], jax.nn.relu(_affine(x.reshape(len(x), -1), p[4])), 0.5), stats


def resnet_weights(draw: Draw, workload: Workload) -> Any:
    """A stem and nine blocks: two convolutions each, and a shortcut where the width changes."""
    blocks, before = [], 16
    for width in (16, 32, 64):
        for _ in range(3):
            shortcut = draw(1, 1, before, width) if width != before else None
            blocks.append((draw(3, 3, before, width), _norm(width), draw(3, 3, width, width), _norm(width), shortcut))
            before = width
    return {"stem": (draw(3, 3, 3, 16), _norm(16)), "blocks": blocks}


def resnet(p: Any, stats: list[Any], key: jax.Array, x: jax.Array) -> tuple[jax.Array, list[Any]]:
    """ResNet-20."""
    moving = _Moving(stats)
    x = jax.nn.relu(moving.normalised(_convolution(x, p["stem"][0]), p["stem"][1]))
    for first, norm1, second, norm2, shortcut in p["blocks"]:
        stride = 1 if shortcut is None else 2
        y = jax.nn.relu(moving.normalised(_convolution(x, first, stride), norm1))
        y = moving.normalised(_convolution(y, second), norm2)
        x = jax.nn.relu(y + (x if shortcut is None else _convolution(x, shortcut, stride, "VALID")))
    return x.mean((1, 2)), moving.new


def mobilenet_weights(draw: Draw, workload: Workload) -> Any:
    """A stem, then a depthwise and a pointwise convolution for each block."""
    blocks, before = [], 32
    for width, _ in MOBILENET_BLOCKS:
        blocks.append((draw(3, 3, 1, before), _norm(before), draw(1, 1, before, width), _norm(width)))
        before = width
    return {"stem": (draw(3, 3, 3, 32), _norm(32)), "blocks": blocks}


def mobilenet(p: Any, stats: list[Any], key: jax.Array, x: jax.Array) -> tuple[jax.Array, list[Any]]:
    """Alternating depthwise and pointwise convolutions."""
    moving = _Moving(stats)
    x = jax.nn.relu(moving.normalised(_convolution(x, p["stem"][0]), p["stem"][1]))
    for (depthwise, norm1, pointwise, norm2), (_, stride) in zip(p["blocks"], MOBILENET_BLOCKS, strict=True):
        y = _convolution(x, depthwise, stride, groups=x.shape[-1])
        y = _convolution(jax.nn.relu(moving.normalised(y, norm1)), pointwise)
        x = jax.nn.relu(moving.normalised(y, norm2))
    return x.mean((1, 2)), moving.new


def lstm_weights(draw: Draw, workload: Workload) -> Any:
    """An embedding of 64 and a cell of 64: kernels of input and state, and biases, gates side by side."""
    return {"embedding": draw(workload.vocabulary, 64), "w": draw(64, 256), "u": draw(64, 256), "b": jnp.zeros(256)}


def lstm(p: Any, stats: list[Any], key: jax.Array, x: jax.Array) -> tuple[jax.Array, list[Any]]:
    """The last output of an LSTM; its input's part of the gates is computed for all tokens at once."""
    inputs = jnp.swapaxes(p["embedding"][x] @ p["w"] + p["b"], 0, 1)

    def cell(state: tuple[jax.Array, jax.Array], gates: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        hidden, carried = state
        i, f, c, o = jnp.split(gates + hidden @ p["u"], 4, axis=-1)
        carried = jax.nn.sigmoid(f) * carried + jax.nn.sigmoid(i) * jnp.tanh(c)
        return (jax.nn.sigmoid(o) * jnp.tanh(carried), carried), None

    zeros = jnp.zeros((len(x), 64))
    return jax.lax.scan(cell, (zeros, zeros), inputs)[0][0], stats


def transformer_weights(draw: Draw, workload: Workload) -> Any:
    """Embeddings of tokens and places, and for each layer: queries, keys, values, output, and two dense layers."""
    blocks = [
        {
            "attention": [_linear(draw, 256, 256) for _ in range(4)],
            "dense": [_linear(draw, 256, 1024), _linear(draw, 1024, 256)],
            "norms": [_norm(256), _norm(256)],
        }
        for _ in range(4)
    ]
    return {
        "tokens": draw(workload.vocabulary, 256),
        "places": draw(*workload.shape, 256),
        "blocks": blocks,
        "norm": _norm(256),
    }


def transformer(p: Any, stats: list[Any], key: jax.Array, x: jax.Array) -> tuple[jax.Array, list[Any]]:
    """Four encoder layers, normalised before each part."""
    x = p["tokens"][x] + p["places"]
    for block in p["blocks"]:
        x = x + _attention(_layer_norm(x, block["norms"][0]), block["attention"])
        y = jax.nn.relu(_affine(_layer_norm(x, block["norms"][1]), block["dense"][0]))
        x = x + _affine(y, block["dense"][1])
    return _layer_norm(x, p["norm"]).mean(1), stats


def stats_of(workload: Workload) -> list[Any]:
    """The moving averages of a network's batch normalisations, as training starts: mean and variance."""
    norms = {"resnet": _resnet_norms, "mobilenet": _mobilenet_norms}.get(workload.model)
    return [] if norms is None else [(jnp.zeros(width), jnp.ones(width)) for width in norms()]


def _resnet_norms() -> list[int]:
    return [16] + [width for width in (16, 32, 64) for _ in range(6)]


def _mobilenet_norms() -> list[int]:
    widths = [32] + [width for width, _ in MOBILENET_BLOCKS]
    return [32] + [width for pair in zip(widths, widths[1:], strict=False) for width in pair]


class _Moving:
    """Normalises batches in the order of the network, and gathers the new moving averages."""

    def __init__(self, stats: list[Any]) -> None:
        self._stats = iter(stats)
        self.new: list[Any] = []

    def normalised(self, x: jax.Array, norm: Any) -> jax.Array:
        mean = x.mean((0, 1, 2))
        variance = jnp.square(x - mean).mean((0, 1, 2))
        old = next(self._stats)
        self.new.append(tuple(0.99 * a + 0.01 * b for a, b in zip(old, (mean, variance), strict=True)))
        return (x - mean) * (jax.lax.rsqrt(variance + 1e-3) * norm[0]) + norm[1]


def _attention(x: jax.Array, layers: Any) -> jax.Array:
    query, key, value = (_affine(x, layer).reshape(*x.shape[:2], 4, 64) for layer in layers[:3])
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", query / 8, key), axis=-1)
    return _affine(jnp.einsum("bhqk,bkhd->bqhd", scores, value).reshape(x.shape), layers[3])


def _layer_norm(x: jax.Array, norm: Any) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-3) * norm[0] + norm[1]


def _norm(width: int) -> Any:
    return jnp.ones(width), jnp.zeros(width)


def _linear(draw: Draw, inputs: int, outputs: int) -> Any:
    return draw(inputs, outputs), jnp.zeros(outputs)


def _affine(x: jax.Array, layer: Any) -> jax.Array:
    return x @ layer[0] + layer[1]


def _convolution(x: jax.Array, w: jax.Array, stride: int = 1, padding: str = "SAME", groups: int = 1) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), padding, dimension_numbers=layout, feature_group_count=groups
    )


def _pooled(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _dropout(key: jax.Array, x: jax.Array, rate: float) -> jax.Array:
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


#: Weights, forward pass and features of the last hidden layer.
NETWORKS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "small": (small_weights, dense, 64),
    "dense": (dense_weights, dense, 128),
    "cnn": (cnn_weights, cnn, 512),
    "resnet": (resnet_weights, resnet, 64),
    "mobilenet": (mobilenet_weights, mobilenet, 256),
    "lstm": (lstm_weights, lstm, 64),
    "transformer": (transformer_weights, transformer, 256),
}
