"""Generates tokens with a GPT-2 of random weights: KerasHub on the emulated IPU and stock, JAX by hand."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Run = Callable[[], Any]
"""Generates the tokens of a round."""
PROMPT = 8
"""Tokens that are given."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of a GPT-2.

    Attributes:
        vocabulary, layers, heads, width, inner: of tokens, blocks, attention, hidden states, and dense layers.
    """

    vocabulary: int
    layers: int
    heads: int
    width: int
    inner: int

    @property
    def weight_bytes(self) -> int:
        """Bytes that each token has to read: all matrices in float32; of the table of tokens as the last product."""
        return 4 * (self.vocabulary * self.width + self.layers * (4 * self.width**2 + 2 * self.width * self.inner))

    def cache_bytes(self, length: int) -> int:
        """Bytes of the keys and values of a text of some length, in float32."""
        return 4 * 2 * self.layers * length * self.width


TINY = Sizes(100, 1, 2, 16, 16)
SIZES = {
    "small": Sizes(5000, 4, 4, 256, 1024),
    "gpt2": Sizes(50257, 12, 12, 768, 3072),
    # As wide as models of 1 billion weights.
    "wide": Sizes(32000, 3, 16, 2048, 8192),
}


def kerashub(sizes: Sizes, tokens: int, ours: bool, mode: str | None = None) -> Run:
    """Generates greedily with KerasHub, on the emulated IPU or stock, on the backend of KERAS_BACKEND.

    Args:
        sizes: of the model.
        tokens: of a round.
        ours: whether on the emulated IPU.
        mode: of quantised weights, such as "int8"; None for float32.
    """
    with _scope() if ours else contextlib.nullcontext():
        model = _gpt2(sizes, PROMPT + tokens)
        if mode is not None:
            model.quantize(mode)
        model.compile(sampler="greedy")
    ids, mask = np.zeros((2, 1, PROMPT + tokens), np.int32)
    ids[0, :PROMPT], mask[0, :PROMPT] = np.arange(PROMPT), 1
    return lambda: model.generate({"token_ids": ids, "padding_mask": mask}, stop_token_ids=None)["token_ids"]


def _scope() -> contextlib.AbstractContextManager[Any]:
    import ipu_tf as ipu

    cfg = ipu.config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy().scope()


def _gpt2(sizes: Sizes, length: int) -> Any:
    import keras

    keras_hub = importlib.import_module("keras_hub")  # an extra, without types
    keras.utils.set_random_seed(1)
    backbone = keras_hub.models.GPT2Backbone(
        sizes.vocabulary, sizes.layers, sizes.heads, sizes.width, sizes.inner, dropout=0.0, max_sequence_length=length
    )
    return keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)


def by_hand(sizes: Sizes, tokens: int) -> Run:
    """Generates greedily by one jitted loop, with a cache of keys and values for each block."""
    weights = _random_weights(sizes, PROMPT + tokens)
    run = jax.jit(lambda given, ids: _generated(sizes, given, ids, tokens))
    ids = jnp.arange(PROMPT, dtype=jnp.int32)
    return lambda: np.asarray(run(weights, ids))


def _random_weights(sizes: Sizes, length: int) -> dict[str, Any]:
    random, width, inner = np.random.default_rng(0), sizes.width, sizes.inner

    def matrix(*shape: int) -> jax.Array:
        return jnp.asarray(0.02 * random.standard_normal(shape, np.float32))

    shapes = {"query": (width, width), "key": (width, width), "value": (width, width), "out": (width, width)}
    shapes |= {"wide": (width, inner), "narrow": (inner, width)}
    blocks = [{name: (matrix(*shape), matrix(shape[1])) for name, shape in shapes.items()} for _ in range(sizes.layers)]
    return {"tokens": matrix(sizes.vocabulary, width), "positions": matrix(length, width), "blocks": blocks}


def _generated(sizes: Sizes, weights: dict[str, Any], ids: jax.Array, tokens: int) -> jax.Array:
    length = PROMPT + tokens
    empty = jnp.zeros((sizes.layers, 2, length, sizes.heads, sizes.width // sizes.heads))
    first, caches = _next(sizes, weights, ids, tuple(empty), 0)
    filled = lax.dynamic_update_slice(jnp.zeros(length, jnp.int32), ids, (0,)).at[PROMPT].set(first)

    def body(at: Any, state: Any) -> Any:
        filled, caches = state
        token, caches = _next(sizes, weights, lax.dynamic_slice(filled, (at - 1,), (1,)), caches, at - 1)
        return filled.at[at].set(token), caches

    return lax.fori_loop(PROMPT + 1, length, body, (filled, caches))[0]


def _next(sizes: Sizes, weights: dict[str, Any], ids: jax.Array, caches: Any, at: Any) -> tuple[jax.Array, Any]:
    """Returns the likeliest token after `ids`, which begin at place `at`, and the caches with their keys and values."""
    hidden = weights["tokens"][ids] + lax.dynamic_slice(weights["positions"], (at, 0), (len(ids), sizes.width))
    after = []
    for block, cache in zip(weights["blocks"], caches, strict=True):
        hidden, cache = _block(sizes, block, hidden, cache, at)
        after.append(cache)
    return jnp.argmax(weights["tokens"] @ _normalized(hidden[-1])).astype(jnp.int32), tuple(after)


def _block(sizes: Sizes, block: Any, hidden: jax.Array, cache: jax.Array, at: Any) -> tuple[jax.Array, jax.Array]:
    def dense(name: str, values: jax.Array) -> jax.Array:
        kernel, bias = block[name]
        return values @ kernel + bias

    def heads(name: str) -> jax.Array:
        return dense(name, normalized).reshape(len(hidden), sizes.heads, -1)

    normalized = _normalized(hidden)
    cache = lax.dynamic_update_slice(cache, jnp.stack([heads("key"), heads("value")]), (0, at, 0, 0))
    scores = jnp.einsum("qhd,khd->hqk", heads("query"), cache[0]) / math.sqrt(sizes.width // sizes.heads)
    seen = jnp.arange(cache.shape[1]) <= at + jnp.arange(len(hidden))[:, None]
    attended = jnp.einsum("hqk,khd->qhd", jax.nn.softmax(jnp.where(seen, scores, -1e9)), cache[1])
    hidden = hidden + dense("out", attended.reshape(len(hidden), -1))
    return hidden + dense("narrow", jax.nn.gelu(dense("wide", _normalized(hidden)))), cache


def _normalized(values: jax.Array) -> jax.Array:
    centred = values - values.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def stream(sizes: Sizes, tokens: int) -> Run:
    """Reads as many bytes as the weights have, for each token: sums on all cores, a measure of memory's speed."""
    total = jax.jit(lambda array, _: array.sum())
    array = jnp.ones(sizes.weight_bytes // 4, jnp.float32)
    return lambda: [total(array, number).block_until_ready() for number in range(tokens)]
