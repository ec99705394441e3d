"""Raw ops of the embedded runtime: `application_runtime` and `application_call`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.emulation import record_ignored
from ipu_tf.ops.embedded_runtime import _path, call_op, start_op
from ipu_tf.poplar.refusal import refuse_others


def application_runtime(
    inputs: Sequence[Any], filename: Any, engine_name: str, timeout_us: int | None = None, name: str | None = None
) -> tf.Tensor:
    """Starts an executable file under a name; see `ipu.embedded_runtime.embedded_runtime_start`."""
    if timeout_us is not None:
        record_ignored("application_runtime.timeout_us", timeout_us)
    return start_op(list(inputs), _path(filename), engine_name)


def application_call(
    infeeds: Sequence[Any], anchor: tf.Tensor, outfeed_types: Sequence[Any], engine_name: str, name: str | None = None
) -> list[tf.Tensor]:
    """Calls a started program with one element; see `ipu.embedded_runtime.embedded_runtime_call`."""
    specs = [tf.TensorSpec(None, dtype) for dtype in outfeed_types]
    return call_op(list(infeeds), anchor, specs, engine_name)


__getattr__ = refuse_others(__name__, "this raw op of Graphcore's plugin is not emulated. Use ipu.embedded_runtime.")
