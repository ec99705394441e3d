"""Former name of `ipu_tf.distributed.popdist_strategy`, up to SDK 3.0."""

from __future__ import annotations

from ipu_tf.distributed.popdist_strategy import PopDistStrategy

__all__ = ["PopDistStrategy"]
