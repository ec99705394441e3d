"""Rows that a branch gives to an outfeed deep in a replicated program: handed on after the branch.

JAX takes no callback in a branch under its map over replicas. So the branch hands on a flag and a row, as hidden
state, and the row is given to the queue after it if the flag is set on any replica.
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
    """For each queue that some branches give a row to, and that has to wait for it: nothing given yet, and zeros.

    Args:
        importer: traces the branches.
        blocks: the branches. What loops in them give does not wait.
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
    """Gives the rows that branches handed on to their queues, where there are any."""
    for key, (flag, *row) in rows.items():
        importer.feeds.enqueue(key.removeprefix(ROW), row, flag if importer.active is None else flag & importer.active)


def _nothing(operation: Any) -> Row:
    types = [array_type(str(value.type)) for value in operation.operands]
    return (jnp.bool_(False), *(jnp.zeros(t.shape, t.dtype) for t in types))
