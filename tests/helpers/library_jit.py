"""`jit`: `jax.jit` with the options that the library compiles programs with.

By itself XLA:CPU passes more of a program to YNNPACK, which computes parts of it wrongly or ends the process
(`compiler_options`): a reference that is compiled so says nothing about the library, and takes other tests with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from ipu_tf.device.cache.compiler_options import numeric_options


def jit(function: Callable[..., Any], **options: Any) -> Any:
    """Returns `jax.jit(function, **options)`; to be called from outside of any other."""
    return jax.jit(function, compiler_options=numeric_options(), **options)
