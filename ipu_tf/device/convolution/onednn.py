"""Calls oneDNN's convolution and matmul through XLA:CPU's custom calls, which XLA does not emit itself.

XLA's own convolution is a product on one core; oneDNN's runs on all of them, for groups of features too. XLA takes
custom calls of these names, whose configurations are the messages `OneDnnConvolutionConfig` and `OneDnnMatMulConfig` of
its `xla/service/cpu/onednn_config.proto` as JSON. It is no stable interface: an unknown configuration aborts the
process. So it is used only with the versions of jaxlib that
`tests/ipu_tf/device/convolution/test_onednn.py` was run with, on the platform where they have it.

XLA cannot write programs with such calls to disk. In cached or exported programs there are no such calls.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.device import portable
from ipu_tf.device.cache import executable_cache
from ipu_tf.device.convolution.problem import CanonicalConvolution, ConvLayout

KNOWN = ("0.10.0", "0.10.1", "0.10.2")
"""The versions of jaxlib whose custom call is the one described here."""
TARGET = "__onednn$convolution"
PRODUCT = "__onednn$matmul"
LARGE = np.float32(1e37)
"""A bound of sums, far below the largest float32."""


def usable() -> bool:
    """Returns whether code that is traced now may call oneDNN."""
    kept = executable_cache.directory() is not None or jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    return _compiled_in() and portable.native_code_allowed() and not kept


def convolution(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Computes a convolution of canonical operands by oneDNN.

    Args:
        lhs: of shape `problem.input_shape`, float32.
        rhs: of shape `problem.kernel_shape`, float32.
        problem: what to compute; neither groups of the batch nor dilated or cropped inputs, one to three spatial axes.

    Returns:
        An array of shape `problem.output_shape`.
    """
    return _call(TARGET, problem.output_shape, {"onednn_conv_config": _configuration(problem)}, lhs, rhs)


def convolution_bias_relu(lhs: jax.Array, rhs: jax.Array, bias: jax.Array, problem: CanonicalConvolution) -> jax.Array:
    """Computes `max(convolution + bias, 0)` in one pass over the result.

    oneDNN's ReLU makes 0 of a NaN. So it is called only where there can be none: where the norms of the operands bound
    every sum far below the largest float32. Otherwise the three steps are computed one after the other.

    Args:
        lhs, rhs, problem: as for `convolution`.
        bias: of shape `(problem.out_features,)`, float32.
    """

    def fused(lhs: jax.Array, rhs: jax.Array, bias: jax.Array) -> jax.Array:
        config = {**_configuration(problem), "fusions": {"ops": ["BIAS", "RELU"]}}
        return _call(TARGET, problem.output_shape, {"onednn_conv_config": config}, lhs, rhs, bias)

    def in_steps(lhs: jax.Array, rhs: jax.Array, bias: jax.Array) -> jax.Array:
        return lax.max(convolution(lhs, rhs, problem) + bias, np.float32(0))

    safe = _norm(lhs) * _norm(rhs) + _norm(bias) < LARGE
    return lax.cond(safe, fused, in_steps, lhs, rhs, bias)


def _norm(array: jax.Array) -> jax.Array:
    """Returns the root of the sum of squares, as a product: three times as fast as a maximum. NaN if there is one."""
    row = array.reshape(1, -1)
    return jnp.sqrt(lax.dot_general(row, row, (((1,), (1,)), ((), ()))))[0, 0]


def product_of_columns(left: jax.Array, right: jax.Array) -> jax.Array:
    """Computes `left.T @ right` by oneDNN.

    Args:
        left: `[k, m]`, float32.
        right: `[k, n]`, float32.
    """
    config = {"transpose_a": True, "transpose_b": False, "fusions": {}, "optimization_config": {}}
    return _call(PRODUCT, (left.shape[1], right.shape[1]), {"onednn_matmul_config": config}, left, right)


def _call(target: str, shape: tuple[int, ...], config: dict[str, Any], *operands: jax.Array) -> jax.Array:
    # Version 2: the configuration is a plain string, as XLA's own passes would leave it.
    result = jax.ShapeDtypeStruct(shape, np.float32)
    call = jax.ffi.ffi_call(target, result, custom_call_api_version=2, legacy_backend_config=json.dumps(config))
    made: jax.Array = call(*operands)
    return made


@functools.cache
def _compiled_in() -> bool:
    on_linux = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    return on_linux and importlib.metadata.version("jaxlib") in KNOWN


def _configuration(problem: CanonicalConvolution) -> dict[str, Any]:
    layout, rank = ConvLayout.canonical(problem.rank), str(problem.rank + 2)
    data = {
        "batch_dim": str(layout.input_batch),
        "feature_dim": str(layout.input_feature),
        "spatial_dims": _texts(layout.input_spatial),
    }
    kernel = {
        "input_feature_dim": str(layout.kernel_input_feature),
        "output_feature_dim": str(layout.kernel_output_feature),
        "spatial_dims": _texts(layout.kernel_spatial),
    }
    window = {
        "pad_left": _texts([low for low, _ in problem.padding]),
        "pad_right": _texts([high for _, high in problem.padding]),
        "strides": _texts(problem.strides),
        "window_dilations": _texts(problem.window_dilation),
    }
    return {
        "dims": rank,
        "input": {"dims": rank, "data": data},
        "kernel": {"dims": rank, "filter": kernel},
        "output": {"dims": rank, "data": data},
        "window": window,
        "feature_groups": str(problem.feature_groups),
    }


def _texts(numbers: Sequence[int]) -> list[str]:
    """Converts 64-bit integers to strings, as protocol buffers in JSON have them."""
    return [str(number) for number in numbers]
