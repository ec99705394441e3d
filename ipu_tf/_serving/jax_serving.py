"""Wraps a JAX function as a `tf.function` for export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import tensorflow as tf

from ipu_tf.lowering.programs.exported_function import exported_function


def tensorflow_function(
    function: Callable[..., Sequence[Any]], parameters: Sequence[Any]
) -> Callable[..., list[tf.Tensor]]:
    """A JAX function as one op of TensorFlow, which stock TensorFlow runs and the device does.

    It is traced in JAX's own precision, 32 bits, whatever the device's.

    Args:
        function: takes arrays and gives a list of arrays; traceable by JAX.
        parameters: what it takes, in order: anything with a `shape` and a `dtype`.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> doubled = tensorflow_function(lambda x: [2 * x], [jax.ShapeDtypeStruct((2,), jnp.float32)])
        >>> print(doubled(tf.constant([1.0, 2.0]))[0].numpy())
        [2. 4.]
    """
    with jax.enable_x64(False):
        return exported_function(function, [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in parameters])
