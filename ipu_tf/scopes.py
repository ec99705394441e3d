"""Scopes that say where a part of a program goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from ipu_tf.lowering import tf_private


@contextlib.contextmanager
def ipu_scope(device: str) -> Iterator[None]:
    """Ops made within it belong to an emulated IPU: compile them with `ipu_compiler.compile`.

    An op that is run within the scope without being compiled is an error. TensorFlow alone would run it on the CPU in
    silence.

    Args:
        device: e.g. `/device:IPU:0`.

    Raises:
        tf.errors.InvalidArgumentError: where an op is run within the scope that is not part of a compiled program.

    Example:
        >>> from ipu_tf.scopes import ipu_scope
        >>> with ipu_scope("/device:IPU:0"):
        ...     pass
    """
    with contextlib.ExitStack() as stack:
        if tf_private.executing_eagerly():
            soft = tf.config.get_soft_device_placement()
            tf.config.set_soft_device_placement(False)
            stack.callback(tf.config.set_soft_device_placement, soft)
        stack.enter_context(tf.device(device))
        yield
