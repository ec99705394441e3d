"""Rules for random numbers: stateful ones (`rng`) from the device's seed, and `rng_bit_generator`.

`stablehlo.rng` carries no state, so the seed is hidden state of the program: one key a draw, split off the last.
As on an IPU, the numbers differ from those TensorFlow's CPU kernels draw; only their distribution agrees.
`rng_bit_generator` is of `tf.random.stateless_*`, `tf.random.Generator` and seeded dropout.
`ipu.random_sample` is of distributions that StableHLO has no op for: gamma, Poisson, binomial.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device.numerics.philox import philox_bits
from ipu_tf.lowering.importer.rules.registry import Importer, custom_call_rule, rule
from ipu_tf.lowering.stablehlo.module import configuration
from ipu_tf.lowering.stablehlo.op import Op


@rule("stablehlo.rng_bit_generator")
def _rng_bit_generator(importer: Importer, op: Op, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    bits = op.results[1]
    algorithm = op.word("rng_algorithm")
    if algorithm == "PHILOX":
        return philox_bits(state, bits.shape, bits.dtype)
    if algorithm == "THREE_FRY":
        return lax.rng_bit_generator(state, bits.shape, bits.dtype, lax.RandomAlgorithm.RNG_THREE_FRY)
    raise NotImplementedError(f"Wanted a random number algorithm that is the same everywhere. Received: {algorithm}.")


SEED = "seed"


@rule("stablehlo.rng")
def _rng(importer: Any, op: Op, first: jax.Array, second: jax.Array, shape: jax.Array) -> jax.Array:
    importer.hidden[SEED], key = jax.random.split(importer.hidden[SEED])
    result = op.result
    if op.word("rng_distribution") == "NORMAL":
        return first + second * jax.random.normal(key, result.shape, result.dtype)
    if np.issubdtype(result.dtype, np.integer):
        return _integers(key, result.shape, first, second)
    if result.dtype == np.bool_:
        return jax.random.bernoulli(key, 0.5, result.shape)
    unit = jax.random.uniform(key, result.shape, result.dtype)
    return jnp.asarray(first + unit * (second - first), result.dtype)


def _integers(key: jax.Array, shape: tuple[int, ...], low: jax.Array, high: jax.Array) -> jax.Array:
    """Draws from `low` up to below `high`, counting past the largest number: `tf.random.shuffle` has 0 and -1."""
    unsigned = np.dtype(f"u{low.dtype.itemsize}")
    start, end = (lax.bitcast_convert_type(limit, unsigned) for limit in (low, high))
    drawn = jax.random.randint(key, shape, jnp.zeros((), unsigned), end - start, unsigned)
    return lax.bitcast_convert_type(start + drawn, low.dtype)


@custom_call_rule("ipu.random_sample")
def _random_sample(importer: Any, op: Op, seed: jax.Array, first: jax.Array, *second: jax.Array) -> jax.Array:
    words = lax.bitcast_convert_type(seed, jnp.uint32)
    key = jax.random.wrap_key_data(words[:2], impl="threefry2x32")
    for word in words[2:]:  # a counter's, beside the key
        key = jax.random.fold_in(key, word)
    shape = op.result.shape
    distribution = configuration(op.operation)["distribution"]
    if distribution == "gamma":
        return jax.random.gamma(key, first, shape, jnp.float32)
    if distribution == "poisson":
        return jnp.asarray(jax.random.poisson(key, first, shape, jnp.int32), jnp.float32)
    return jax.random.binomial(key, first, second[0], shape, jnp.float32)
