"""`do_not_convert` of AutoGraph, typed: type checkers keep the signature of the function that it decorates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

_Function = TypeVar("_Function", bound=Callable[..., Any])


def do_not_convert(function: _Function) -> _Function:
    """Keeps AutoGraph from converting a function, as `tf.autograph.experimental.do_not_convert` does."""
    unconverted: _Function = tf.autograph.experimental.do_not_convert(function)
    return unconverted
