"""Exports a JAX function as a TensorFlow op (`XlaCallModule`), which runs without this package."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import tensorflow as tf
from jax import export

from ipu_tf.device import portable
from ipu_tf.lowering.jax import jax_private
from ipu_tf.lowering.tensorflow import tf_private

#: Where the op may run, whatever JAX runs on here.
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def exported_function(
    function: Callable[..., Sequence[Any]], parameters: Sequence[Any]
) -> Callable[..., list[tf.Tensor]]:
    """Returns the function on TensorFlow tensors.

    Args:
        function: takes arrays and gives a list of arrays; traceable by JAX.
        parameters: what it takes, in order: shapes and dtypes.

    Returns:
        A function of as many tensors, or variables.
    """
    traced = jax.jit(portable.portable(function), keep_unused=True)
    exported = export.export(traced, platforms=_PLATFORMS)(*parameters)
    module = jax_private.older_artifact(exported.mlir_module_serialized)
    results = [tf.TensorSpec(result.shape, tf.as_dtype(result.dtype)) for result in exported.out_avals]
    platforms = [platform.upper() for platform in exported.platforms]

    def call(*inputs: Any) -> list[tf.Tensor]:
        return tf_private.call_module(inputs, module, exported.calling_convention_version, platforms, results)

    return call
