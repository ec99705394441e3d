"""Suggests alternatives to unsupported ops, by op type or TensorFlow's error message."""

from __future__ import annotations

_STRINGS = "Strings stay on the host: turn them into numbers in the tf.data pipeline, with Dataset.map."
_PYTHON = "Python runs on the host: call it in the tf.data pipeline, or in a callback, or write it with TensorFlow ops."
_TABLES = "Look-up tables stay on the host: look up in the tf.data pipeline, or gather from a tensor of numbers."
_DATA = "Give the dataset to an IPUInfeedQueue, or to `fit`; the program then takes its elements."
_FILES = "Files and images are read on the host: do it in the tf.data pipeline."
_SUMMARIES = (
    "Summaries are written on the host: return the value from the program, or update a Keras metric with it; a Keras "
    "model compiled with `run_eagerly=True` writes its own."
)
_PRINTS = (
    "`ipu_tf.ops.internal_ops.print_tensor` prints from a program; a Keras model compiled with `run_eagerly=True` "
    "prints as in Python."
)

#: Parts of the names of op types, and what to do.
_BY_TYPE = (
    (("PyFunc",), _PYTHON),
    (("LookupTable", "HashTable"), _TABLES),
    (("Iterator", "Dataset"), _DATA),
    (("Summary",), _SUMMARIES),
    (("Print",), _PRINTS),
    (("Decode", "Encode", "ReadFile", "WriteFile"), _FILES),
    (("String", "Regex", "Unicode", "Substr"), _STRINGS),
)

FIXED_SHAPES = (
    "tf.where(x), tf.unique and tf.boolean_mask make such shapes; their forms with fixed shapes (tf.where(x, a, b), "
    "a mask multiplied in, tf.math.top_k) do not."
)
CONSTANT = (
    "Compute that argument in Python, from static shapes such as x.shape[0], or make it a constant: the device needs "
    "fixed shapes."
)


def advice_for(op_type: str) -> str:
    """Returns the alternative to an op of this type; empty if none is known."""
    return next((advice for parts, advice in _BY_TYPE if any(part in op_type for part in parts)), "")
