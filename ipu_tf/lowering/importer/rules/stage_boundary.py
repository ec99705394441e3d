"""Rules for pipeline stage markers: identity, since stages are cut before."""

from __future__ import annotations

from typing import Any

import jax

from ipu_tf.lowering.importer.rules.registry import custom_call_rule
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.stablehlo.stage_markers import CHECKPOINT, STAGE_BOUNDARY


@custom_call_rule(STAGE_BOUNDARY, CHECKPOINT)
def _boundary(importer: Any, op: Op, value: jax.Array) -> jax.Array:
    return value
