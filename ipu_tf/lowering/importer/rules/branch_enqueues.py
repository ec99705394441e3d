"""Enqueues to outfeeds from branches of a replicated program, by a host callback after the branch.

JAX does not allow a callback in a branch under `vmap` over replicas. So the branch returns a flag and an element as
hidden state, and the element is enqueued after the branch if the flag is set on any replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from ipu_tf.lowering.stablehlo.accumulation_checks import own_operations
from ipu_tf.lowering.stablehlo.hidden_state import ROW
from ipu_tf.lowering.stablehlo.module import OUTFEED, custom_call_target, feed_name
from ipu_tf.lowering.stablehlo.op import array_type

Row = tuple[Any, ...]


def empty_elements(importer: Any, blocks: Sequence[Any]) -> dict[str, Row]:
    """Returns the initial flag and element, unset and zeros, of each queue that some branches enqueue to.

    Args:
        importer: traces the branches.
        blocks: the branches. Elements enqueued by loops in them are not deferred.
    """
    if importer.replicas == 1:
        return {}
    given = [
        operation
        for block in blocks
        for operation in own_operations(importer.module, block)
        if custom_call_target(operation) == OUTFEED and ROW + str(feed_name(operation)) not in importer.hidden
    ]
    return {ROW + str(feed_name(operation)): _nothing(operation) for operation in given}


def enqueue_from_branches(importer: Any, rows: dict[str, Row]) -> None:
    """Enqueues the deferred elements of branches to their queues, if there are any."""
    for key, (flag, *row) in rows.items():
        importer.feeds.enqueue(key.removeprefix(ROW), row, flag if importer.active is None else flag & importer.active)


def _nothing(operation: Any) -> Row:
    types = [array_type(str(value.type)) for value in operation.operands]
    return (jnp.bool_(False), *(jnp.zeros(t.shape, t.dtype) for t in types))
