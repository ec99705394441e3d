"""Rules for infeed and outfeed markers: `ipu.infeed` and `ipu.outfeed`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.lowering.importer.rules.registry import custom_call_rule
from ipu_tf.lowering.stablehlo.module import INFEED, OUTFEED, feed_name
from ipu_tf.lowering.stablehlo.needed_hidden_state import ENQUEUED
from ipu_tf.lowering.stablehlo.op import Op


@custom_call_rule(INFEED)
def _infeed(importer: Any, op: Op) -> list[jax.Array]:
    return importer.feeds.dequeue(feed_name(op.operation), op.results, importer.active)


@custom_call_rule(OUTFEED)
def _outfeed(importer: Any, op: Op, *values: jax.Array) -> np.ndarray:
    queue = feed_name(op.operation)
    if ENQUEUED + str(queue) in importer.hidden:
        importer.hidden[ENQUEUED + str(queue)] = (jnp.bool_(True), *map(jnp.asarray, values))
    else:
        importer.feeds.enqueue(queue, values, importer.active)
    return np.zeros((), np.int32)
