"""Hidden state: what a program threads through its control flow without naming it.

Each piece has a key. The seed of stateful random ops, accumulators of gradients and delay lines belong to each
replica; how far a loop has come is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device import seed
from ipu_tf.device.program import Hidden
from ipu_tf.device.replicas import Replicas

SEED = "seed"
"""Where stateful random ops draw from: `uint32[2]`."""
ITERATION = "iteration"
"""The index of the present iteration of the innermost loop: `int32[]`."""
SEED_TYPE = jax.ShapeDtypeStruct((2,), np.dtype(np.uint32))
ITERATION_TYPE = jax.ShapeDtypeStruct((), np.dtype(np.int32))


def initial(types: Mapping[str, jax.ShapeDtypeStruct], ordinal: int, replicas: Replicas) -> Hidden:
    """The hidden state that an execution starts with: the device's next seed, and zeros."""
    state: Hidden = {}
    for key, struct in types.items():
        if key == SEED:
            seeds = seed.next_seeds(ordinal, replicas.count)
            state[key] = replicas.place(seeds, 0) if replicas.count > 1 else jax.device_put(seeds[0])
        elif key == ITERATION:
            state[key] = jnp.int32(0)
        else:
            state[key] = replicas.spread(jnp.zeros(struct.shape, struct.dtype), struct.shape)
    return state


def replica_axes(types: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, int | None]:
    """Where each piece has its axis of replicas; None for one that they share."""
    return {key: None if key == ITERATION else 0 for key in types}
