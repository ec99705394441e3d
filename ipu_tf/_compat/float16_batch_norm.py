"""Lets TensorFlow's fused batch norm take a scale and an offset in float16, as Graphcore's TensorFlow did."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ipu_tf._patches.installation import replace_in


def patch_batch_norm(ops: ModuleType) -> None:
    """Replaces the op of `tf.compat.v1.nn.fused_batch_norm`, whose parameters stock TensorFlow wants in float32.

    Args:
        ops: TensorFlow's module of such ops.
    """
    replace_in(ops, "fused_batch_norm_v3", _in_float32)


def _in_float32(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def fused_batch_norm(x: Any, scale: Any, offset: Any, mean: Any, variance: Any, **kwargs: Any) -> Any:
        import tensorflow as tf

        if getattr(scale, "dtype", None) != tf.float16:
            return stock(x, scale, offset, mean, variance, **kwargs)
        parameters = (tf.cast(each, tf.float32) for each in (scale, offset, mean, variance))
        found = stock(x, *parameters, **kwargs)
        moments = (tf.cast(each, tf.float16) for each in (found.batch_mean, found.batch_variance))
        return found._replace(**dict(zip(("batch_mean", "batch_variance"), moments, strict=True)))

    return fused_batch_norm
