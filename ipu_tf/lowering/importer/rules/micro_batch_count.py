"""Rule that checks a pipeline's micro-batch count at run time."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import tensorflow as tf

from ipu_tf.device.feeds import callbacks
from ipu_tf.lowering.importer.rules.registry import custom_call_rule
from ipu_tf.lowering.stablehlo.module import configuration
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.tensorflow.host_calls import PIPELINE_DEPTH


@custom_call_rule(PIPELINE_DEPTH)
def _pipeline_depth(importer: Any, op: Op, count: jax.Array) -> list[jax.Array]:
    overlap = configuration(op.operation)["overlap"]

    def checked(value: np.ndarray) -> list[np.ndarray]:
        if value < overlap or value % overlap:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                "Pipeline depth is invalid. Check that pipeline depth is divisible by the overlap length "
                f"({overlap}) and pipeline depth is >= {overlap}.\nReceived: {int(value)}.",
            )
        return [value]

    return list(
        callbacks.call_host(checked, tuple(op.results), count, replicas=importer.replicas, active=importer.active)
    )
