"""`tf.contrib.compiler`."""

from __future__ import annotations

from ipu_tf._compat.tf_contrib.compiler import xla

__all__ = ["xla"]
