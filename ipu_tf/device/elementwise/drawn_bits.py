"""Draws of random bits in a jaxpr, which the native kernel makes: `random_bits` of Threefry keys."""

from __future__ import annotations

import math
from typing import Any

import jax
from jax.extend import core

from ipu_tf.device.convolution.native import random_bits


def is_draw(eqn: core.JaxprEqn) -> bool:
    """Returns whether an equation draws what the native kernel draws too: 32 bits an element, by counters."""
    settings: Any = jax.config  # its options are attributes that it declares while it runs
    if eqn.primitive.name != "random_bits" or not settings.jax_threefry_partitionable:
        return False
    keys: Any = eqn.invars[0].aval
    parameters = eqn.params
    return (
        str(keys.dtype) == "key<fry>"
        and parameters["bit_width"] == 32
        and math.prod((*keys.shape, *parameters["shape"])) > 0
    )


def drawn(eqn: core.JaxprEqn, keys: jax.Array) -> jax.Array:
    """Returns the bits that an equation draws."""
    return random_bits.threefry_bits(jax.random.key_data(keys), eqn.params["shape"])
