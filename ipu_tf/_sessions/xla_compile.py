"""Compiles `xla.compile` within an IPU device scope for the device, as `ipu_compiler.compile` does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.session_graph import is_ipu


def on_devices(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `xla.compile`: within a device scope of an IPU it compiles for the device.

    Args:
        stock: TensorFlow's own, which serves every other device.
    """

    def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
        if not is_ipu(tf_values.current_device()):
            return stock(computation, inputs)
        # Only now: this module is imported together with TensorFlow, which is slow enough.
        from ipu_tf import ipu_compiler

        return ipu_compiler.compile(computation, inputs)

    return compile
