"""`tf.contrib.data`."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["AUTOTUNE", "map_and_batch", "parallel_interleave", "shuffle_and_repeat"]

AUTOTUNE = tf.data.AUTOTUNE
map_and_batch = tf.compat.v1.data.experimental.map_and_batch
parallel_interleave = tf.compat.v1.data.experimental.parallel_interleave
shuffle_and_repeat = tf.compat.v1.data.experimental.shuffle_and_repeat
