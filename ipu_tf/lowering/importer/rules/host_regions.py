"""While loops and branches with host callbacks in a replicated program.

Replicas call the host together, and JAX does not allow a callback under a condition that differs between them. So a
loop continues, and a branch is taken, if any replica's condition holds; the other replicas are inactive in it, which
is passed to the host, and keep their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.program.replicas import any_replica
from ipu_tf.lowering.stablehlo.accumulation_checks import own_operations
from ipu_tf.lowering.stablehlo.module import INFEED, OUTFEED, custom_call_target, feed_name, walk
from ipu_tf.lowering.stablehlo.needed_hidden_state import ENQUEUED
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.tensorflow.host_calls import HOST_CALLS

Function = Callable[[Any], Any]


def calls_host(importer: Any, op: Op) -> bool:
    """Returns whether the regions of a loop or branch call the host, in a program of several replicas."""
    if importer.replicas == 1:
        return False
    # The elements that branches enqueue themselves wait until after the branch.
    waiting = (
        {o for b in op.regions for o in own_operations(importer.module, b)} if op.name != "stablehlo.while" else ()
    )
    inside = (o for b in op.regions for o in walk(b, importer.module.functions) if o not in waiting or not _enqueues(o))
    return any(_calls(importer, operation) for operation in inside)


def loop(importer: Any, condition: Function, body: Function, start: Any) -> Any:
    """Runs `lax.while_loop` as long as any replica's condition holds; other replicas keep their values."""
    outer = importer.active

    def wanted(carry: Any) -> jax.Array:
        return condition(carry) if outer is None else condition(carry) & outer

    def run(carry: Any) -> Any:
        own = wanted(carry)
        with importer.only_where(own):
            return _selected(own, body(carry), carry)

    return lax.while_loop(lambda carry: any_replica(wanted(carry)), run, start)


def branches(importer: Any, index: jax.Array, functions: Sequence[Function], hidden: Any, types: Sequence[Any]) -> Any:
    """Runs each branch that any replica takes, one after the other; selects each replica's own results."""
    results: Any = (hidden, tuple(jnp.zeros(t.shape, t.dtype) for t in types))
    for number, function in enumerate(functions):
        own = index == number if importer.active is None else (index == number) & importer.active
        results = _once(importer, own, function, results)
    return results


def _once(importer: Any, own: jax.Array, function: Function, results: Any) -> Any:
    """Runs a branch as a loop of one iteration: JAX allows callbacks in loops, not in branches."""

    def run(state: Any) -> Any:
        with importer.only_where(own):
            return jnp.bool_(False), _selected(own, function(state[1][0]), state[1])

    return lax.while_loop(lambda state: state[0], run, (any_replica(own), results))[1]


def _selected(own: jax.Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(own, a, b), new, old)


def _enqueues(operation: Any) -> bool:
    return custom_call_target(operation) == OUTFEED


def _calls(importer: Any, operation: Any) -> bool:
    target = custom_call_target(operation)
    if target == OUTFEED:
        return ENQUEUED + str(feed_name(operation)) not in importer.hidden
    return target == INFEED or target in HOST_CALLS
