"""Rule for `rng_bit_generator`: random bits for `tf.random.stateless_*`, `tf.random.Generator`, seeded dropout."""

from __future__ import annotations

import jax
from jax import lax

from ipu_tf.device.numerics.philox import philox_bits
from ipu_tf.lowering.importer.rules.registry import Importer, rule
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
