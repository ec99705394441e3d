"""`tf.contrib.framework`."""

from __future__ import annotations

import sys

import tensorflow as tf

__all__ = ["checkpoint_utils", "get_or_create_global_step", "list_variables", "load_variable", "nest"]

nest = tf.nest
list_variables = tf.train.list_variables
load_variable = tf.train.load_variable
get_or_create_global_step = tf.compat.v1.train.get_or_create_global_step

#: `tf.contrib.framework.python.framework.checkpoint_utils` has the same functions.
checkpoint_utils = sys.modules[__name__]
