"""Compatibility module for `tensorflow.contrib`: the parts that IPU programs use.

Enters: a program that imports `tensorflow.contrib`. Leaves: functions and classes of TensorFlow 2 and this project.
Start with `layers`.
"""

from __future__ import annotations

from typing import Any

from ipu_tf._compat.tf_contrib import compiler, data, framework, layers, rnn, util

__all__ = ["compiler", "data", "framework", "layers", "rnn", "util"]


def __getattr__(name: str) -> Any:
    if name == "ipu":
        import ipu_tf

        return ipu_tf
    raise AttributeError(
        f"tf.contrib.{name} is not there: TensorFlow 2 dropped tf.contrib. This project has {', '.join(__all__)} "
        "and ipu of it, as far as programs for the IPU use them."
    )
