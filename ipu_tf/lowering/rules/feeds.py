"""Markers of the feeds: `ipu.infeed` and `ipu.outfeed`."""

from __future__ import annotations

from typing import Any

import jax

from ipu_tf.lowering.module import INFEED, OUTFEED, feed_name
from ipu_tf.lowering.op import Op
from ipu_tf.lowering.rules.registry import custom_call_rule


@custom_call_rule(INFEED)
def _infeed(importer: Any, op: Op) -> list[Any]:
    element = importer.feeds.dequeue(feed_name(op.operation), op.results)
    # Several tensors come as one tuple.
    return element if len(op.operation.results) == len(element) else [tuple(element)]


@custom_call_rule(OUTFEED)
def _outfeed(importer: Any, op: Op, *values: jax.Array) -> list[None]:
    importer.feeds.enqueue(feed_name(op.operation), values)
    return [None] * len(op.operation.results)
