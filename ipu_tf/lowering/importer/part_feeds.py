"""Resolves infeed and outfeed markers while a part of a program is traced."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import jax

from ipu_tf.device.feeds import callbacks
from ipu_tf.device.program.program import Elements, Types
from ipu_tf.lowering.stablehlo.module import INFEED, OUTFEED, custom_call_target, feed_name
from ipu_tf.lowering.stablehlo.op import Op, array_type


class PartFeeds:
    """Feeds of a part: dequeues staged elements, collects enqueued ones, uses host callbacks for other queues.

    Args:
        elements: one element for each staged infeed.
        outfeeds: names of the staged outfeeds.
        replicas: how many replicas the program is traced for.

    Attributes:
        enqueued: the elements enqueued to staged outfeeds so far.
    """

    def __init__(self, elements: Elements, outfeeds: Sequence[str], replicas: int = 1) -> None:
        self._elements = dict(elements)
        self._outfeeds = frozenset(outfeeds)
        self._replicas = replicas
        self.enqueued: Elements = {}

    def dequeue(
        self, queue: str, types: Sequence[jax.ShapeDtypeStruct], given: jax.Array | None = None
    ) -> list[jax.Array]:
        """Dequeues the next element of an infeed.

        Args:
            queue: its name.
            types: of the element.
            given: whether this replica dequeues one, `bool[]`; zeros if not. By default all do.
        """
        if queue in self._elements:
            return list(self._elements.pop(queue))
        return list(callbacks.dequeue(queue, tuple(types), self._replicas, given))

    def enqueue(self, queue: str, values: Sequence[jax.Array], given: jax.Array | None = None) -> None:
        """Enqueues an element to an outfeed.

        Args:
            queue: its name.
            values: the element.
            given: whether there is an element, `bool[]`; by default there is. For outfeeds that are not staged.
        """
        if queue in self._outfeeds:
            self.enqueued[queue] = tuple(values)
        else:
            callbacks.enqueue(queue, values, self._replicas, given)


def queue_types(
    operations: Iterable[Any], names: Collection[str] | None = None
) -> tuple[dict[str, Types], dict[str, Types]]:
    """Returns the element types of the infeeds and of the outfeeds that some operations use, by name.

    Args:
        operations: MLIR operations, not those in their regions.
        names: the queues to look for; all by default.
    """
    infeeds: dict[str, Types] = {}
    outfeeds: dict[str, Types] = {}
    for operation in operations:
        name = feed_name(operation) or ""
        if names is not None and name not in names:
            continue
        if custom_call_target(operation) == INFEED:
            infeeds[name] = tuple(Op(operation).results)
        elif custom_call_target(operation) == OUTFEED:
            outfeeds[name] = tuple(array_type(str(value.type)) for value in operation.operands)
    return infeeds, outfeeds
