"""`tf.contrib.compiler.xla`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["compile"]


def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """`tf.xla.experimental.compile`: within an `ipu_scope`, a program of the device."""
    # Looked up now: inside an `ipu_scope` it is the device's.
    return tf.xla.experimental.compile(computation, inputs)
