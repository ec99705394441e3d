"""Rule for stateful random ops (`stablehlo.rng`, `tf.random.uniform`), drawn from the device's seed.

`stablehlo.rng` carries no state, so the seed is hidden state of the program: one key a draw, split off the last.
As on an IPU, the numbers differ from those TensorFlow's CPU kernels draw; only their distribution agrees.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.lowering.importer.rules.registry import rule
from ipu_tf.lowering.stablehlo.op import Op

SEED = "seed"


@rule("stablehlo.rng")
def _rng(importer: Any, op: Op, first: jax.Array, second: jax.Array, shape: jax.Array) -> jax.Array:
    importer.hidden[SEED], key = jax.random.split(importer.hidden[SEED])
    result = op.result
    if op.word("rng_distribution") == "NORMAL":
        return first + second * jax.random.normal(key, result.shape, result.dtype)
    if np.issubdtype(result.dtype, np.integer):
        return jax.random.randint(key, result.shape, first, second, result.dtype)
    if result.dtype == np.bool_:
        return jax.random.bernoulli(key, 0.5, result.shape)
    unit = jax.random.uniform(key, result.shape, result.dtype)
    return jnp.asarray(first + unit * (second - first), result.dtype)
