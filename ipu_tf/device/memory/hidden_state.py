"""Initial hidden state of an execution: seeds, iteration counter, gradient accumulators, FIFOs.

Each piece has a key. The seed of stateful random ops, accumulators of gradients and delay lines belong to each
replica; how far a loop has come is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.memory import seed
from ipu_tf.device.program.program import Hidden
from ipu_tf.device.program.replicas import Replicas

SEED = "seed"
"""Where stateful random ops draw from: `uint32[2]`."""
SHARED_SEED = "shared seed"
"""Where rounding draws from that is to be the same on all replicas: `uint32[2]`."""
ITERATION = "iteration"
"""The index of the present iteration of the innermost loop: `int32[]`."""
_SHARED = np.array([0x5851F42D, 0], np.uint32)  # keeps what is drawn apart from what replica 0 draws for itself
SEED_TYPE = jax.ShapeDtypeStruct((2,), np.dtype(np.uint32))
ITERATION_TYPE = jax.ShapeDtypeStruct((), np.dtype(np.int32))


def initial(types: Mapping[str, jax.ShapeDtypeStruct], ordinal: int, replicas: Replicas) -> Hidden:
    """Returns the initial hidden state of an execution: the device's next seed, and zeros."""
    state: Hidden = {}
    drawn = SEED in types or SHARED_SEED in types
    seeds = seed.next_seeds(ordinal, replicas.count) if drawn else None
    for key, struct in types.items():
        if seeds is not None and key in (SEED, SHARED_SEED):
            own = seeds if key == SEED else np.tile(seeds[0] ^ _SHARED, (replicas.count, 1))
            state[key] = replicas.place(own, 0) if replicas.count > 1 else jax.device_put(own[0])
        elif key == ITERATION:
            state[key] = jnp.int32(0)
        else:
            state[key] = replicas.spread(jnp.zeros(struct.shape, struct.dtype), struct.shape)
    return state


def replica_axes(types: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, int | None]:
    """Returns the replica axis of each piece of hidden state; None for a shared one."""
    return {key: None if key == ITERATION else 0 for key in types}
