"""`eager_step`: a training step of Keras or of `strategy.run` that runs op by op on the device, for debugging."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from ipu_tf._sessions import session_devices
from ipu_tf._sessions.eager_ops import variables_on_host
from ipu_tf._state.context import context_value


@contextlib.contextmanager
def eager_step(device: str) -> Iterator[None]:
    """Context in which each eager op is a program on a device; functions run by their ops.

    Variables have their values on the host meanwhile: what reads them or writes them computes on the device.

    Args:
        device: the device, `/device:IPU:<n>`.
    """
    session_devices.install()
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        with context_value(variables_on_host, True), tf.device(device):
            yield
    finally:
        tf.config.run_functions_eagerly(before)
