"""Raw ops of the IPU system: event trace, configuration, reset."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ipu_tf._sessions.device_trace import TRACE
from ipu_tf.config import get_ipu_config, reset_ipu_configuration
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.host_op import host_op
from ipu_tf.poplar.refusal import refuse_others


def ipu_event_trace(name: str | None = None) -> tf.Tensor:
    """The serialised events since the last time, a rank 1 tensor of strings: see `ipu_tf.test_utils`.

    Args:
        name: for the op.
    """
    if tf_values.executing_eagerly():
        return tf.constant(_events(), tf.string)
    spec = tf.TensorSpec([None], tf.string)
    return host_op(lambda: [np.array(_events(), object)], [], [spec], name or "ipu_event_trace").results[0]


def ipu_get_configuration(name: str | None = None) -> tf.Tensor:
    """Returns the configuration: a rank 1 tensor with the bytes of an `IpuOptions` for each device.

    Args:
        name: for the op.

    Raises:
        RuntimeError: if nothing is; in a graph, when the op runs.
    """
    if tf_values.executing_eagerly():
        return tf.constant(_configuration(), tf.string)
    spec = tf.TensorSpec([None], tf.string)
    call = host_op(lambda: [np.array(_configuration(), object)], [], [spec], name or "ipu_get_configuration")
    return call.results[0]


def ipu_reset_devices(name: str | None = None) -> tf.Operation | None:
    """Drops the configuration, with the variables on the devices: at once in eager mode, else when the op runs.

    Args:
        name: for the op.
    """
    if tf_values.executing_eagerly():
        reset_ipu_configuration()
        return None
    return host_op(lambda: reset_ipu_configuration(), [], [], name or "ipu_reset_devices").operation


def ipu_clear_all_xla_compilation_caches(name: str | None = None) -> tf.Operation | None:
    """Does nothing: programs are compiled again only where they changed, and then at once.

    Args:
        name: for the op.
    """
    return None if tf_values.executing_eagerly() else tf.no_op(name=name or "ipu_clear_all_xla_compilation_caches")


def _configuration() -> list[bytes]:
    return [options.SerializeToString() for options in get_ipu_config()]


def _events() -> list[bytes]:
    return [event.SerializeToString() for event in TRACE.take()]


__getattr__ = refuse_others(
    __name__, "this raw op of Graphcore's plugin is not emulated. Use the functions of ipu.config and ipu.utils."
)
