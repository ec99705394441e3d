"""What is done to a traced loop grows linearly with the arrays that it carries, and with its equations."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.extend import core

from ipu_tf.device.elementwise.evaluate import planned
from ipu_tf.device.jaxprs.split_carries import with_split_carries

SMALL, LARGE = 128, 512
"""Both with more groups than the 100 from which on they are calls."""


def loop_of(carried: int) -> core.ClosedJaxpr:
    """A loop that carries so many arrays, each with equations of its own, and one that it stacks."""

    def step(state: Any) -> Any:
        number, stacked, arrays = state
        rows = jnp.stack([stacked[0] + 1, stacked[1] * 2])
        return number + 1, rows, [jnp.tanh(each * rows[0, 0]).reshape(4, 8) for each in arrays]

    def run(stacked: jax.Array, arrays: list[jax.Array]) -> Any:
        return lax.while_loop(lambda state: state[0] < 3, step, (0, stacked, arrays))

    return jax.make_jaxpr(run)(jnp.ones((2, 3)), [jnp.ones((4, 8))] * carried)


def calls(function: Callable[[core.ClosedJaxpr], Any], carried: int) -> int:
    """Counts the calls of Python functions, which no load of the machine changes."""
    traced, profile = loop_of(carried), cProfile.Profile()
    profile.runcall(function, traced)
    statistics: Any = pstats.Stats(profile)
    return int(statistics.total_calls)


@pytest.mark.parametrize("function", [with_split_carries, planned], ids=["carries are split", "operations are grouped"])
def test_work_grows_linearly_with_what_a_loop_carries(function: Callable[[core.ClosedJaxpr], Any]) -> None:
    calls(function, SMALL)  # fills JAX's caches
    assert calls(function, LARGE) < 1.3 * LARGE / SMALL * calls(function, SMALL)
