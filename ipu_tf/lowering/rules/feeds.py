"""Markers of the feeds: `ipu.infeed` and `ipu.outfeed`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ipu_tf.lowering.module import INFEED, OUTFEED, feed_name
from ipu_tf.lowering.op import Op
from ipu_tf.lowering.rules.registry import custom_call_rule


@custom_call_rule(INFEED)
def _infeed(importer: Any, op: Op) -> list[jax.Array]:
    return importer.feeds.dequeue(feed_name(op.operation), op.results)


@custom_call_rule(OUTFEED)
def _outfeed(importer: Any, op: Op, *values: jax.Array) -> np.ndarray:
    importer.feeds.enqueue(feed_name(op.operation), values)
    return np.zeros((), np.int32)
