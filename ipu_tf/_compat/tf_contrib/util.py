"""`tf.contrib.util`."""

from __future__ import annotations

import tensorflow as tf

__all__ = ["constant_value", "make_ndarray", "make_tensor_proto"]

constant_value = tf.get_static_value
make_ndarray = tf.make_ndarray
make_tensor_proto = tf.make_tensor_proto
