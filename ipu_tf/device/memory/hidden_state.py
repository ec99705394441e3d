"""Initial hidden state of an execution: seeds, iteration counter, gradient accumulators, FIFOs.

Each piece has a key. The seed of stateful random ops, accumulators of gradients and delay lines belong to each
replica; how far a loop has come is the same for all of them.
"""

from __future__ import annotations

import re
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
"""Where rounding draws from that is to be the same on all replicas of all instances: `uint32[2]`."""
ITERATION = "iteration"
"""The index of the present iteration of the innermost loop: `int32[]`."""
_SHARED = np.array([0x5851F42D, 0], np.uint32)  # keeps what is drawn apart from what replica 0 draws for itself
SEED_TYPE = jax.ShapeDtypeStruct((2,), np.dtype(np.uint32))
ITERATION_TYPE = jax.ShapeDtypeStruct((), np.dtype(np.int32))


ACCUMULATOR, DELAY_LINE = "accumulator", "delay line"
"""Kinds of hidden state of which a program may have several pieces."""


def numbered_key(kind: str, number: int, name: str = "") -> str:
    """Returns the key of a piece of hidden state of which there may be several.

    Args:
        kind: `ACCUMULATOR` or `DELAY_LINE`.
        number: other than those of the program's other pieces of this kind.
        name: what it is for, such as a weight's name.

    Keys sort by their numbers: arguments of a compiled function are in the order of their keys, which must not depend
    on how many other programs were made before, lest the executable cache does not know the program again.

    Example:
        >>> sorted([numbered_key("accumulator", 10, "dense/bias"), numbered_key("accumulator", 9, "dense/kernel")])
        ['accumulator 000009 of dense/kernel', 'accumulator 000010 of dense/bias']
    """
    return f"{kind} {number:06}" + (f" of {name}" if name else "")


def readable_key(key: str) -> str:
    """Returns a key without the number that is there to tell it from others, where it says what it is for."""
    return re.sub(r" \d{6,} of ", " of ", key)


def initial(types: Mapping[str, jax.ShapeDtypeStruct], ordinal: int, replicas: Replicas) -> Hidden:
    """Returns the initial hidden state of an execution: the device's next seed, and zeros."""
    state: Hidden = {}
    drawn = SEED in types or SHARED_SEED in types
    seeds = seed.next_seeds(ordinal, replicas.count) if drawn else None
    for key, struct in types.items():
        if seeds is not None and key in (SEED, SHARED_SEED):
            shared = key == SHARED_SEED
            own = np.tile(seed.shared_seed(seeds) ^ _SHARED, (replicas.count, 1)) if shared else seeds
            state[key] = replicas.place(own, 0) if replicas.count > 1 else jax.device_put(own[0])
        elif key == ITERATION:
            state[key] = jnp.int32(0)
        else:
            state[key] = replicas.spread(jnp.zeros(struct.shape, struct.dtype), struct.shape)
    return state


def replica_axes(types: Mapping[str, jax.ShapeDtypeStruct]) -> dict[str, int | None]:
    """Returns the replica axis of each piece of hidden state; None for a shared one."""
    return {key: None if key == ITERATION else 0 for key in types}
