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
import numpy as np

from ipu_tf.device import portable
from ipu_tf.device.cache import executable_cache
from ipu_tf.device.convolution.plan import (
    CALL,
    ONEDNN,
    Best,
    Plan,
    Solve,
    arithmetic,
    is_float32_layer,
    whole,
    writing,
)
from ipu_tf.device.convolution.problem import CanonicalConvolution, ConvLayout

KNOWN = ("0.10.0", "0.10.1", "0.10.2")
"""The versions of jaxlib whose custom call is the one described here."""
TARGET = "__onednn$convolution"
PRODUCT = "__onednn$matmul"
#: Flops in a microsecond on two cores; where each feature is convolved by itself.
RATE, DEPTHWISE_RATE = 330e3, 90e3
#: Microseconds to prepare a call.
PREPARE = 15.0
#: Features that are computed together.
WIDTH = 16
#: The largest extent of a window for which there is a fast kernel.
MOST_EXTENT = 25


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


def _applies(problem: CanonicalConvolution) -> bool:
    simple = problem.is_plain and is_float32_layer(problem)
    return simple and 1 <= problem.rank <= 3 and max(problem.window) <= MOST_EXTENT and _overlaps(problem)


def _overlaps(problem: CanonicalConvolution) -> bool:
    """Tests whether every window overlaps the input."""
    reaches = ((w - 1) * d for w, d in zip(problem.window, problem.window_dilation, strict=True))
    return all(max(padding) <= reach for padding, reach in zip(problem.padding, reaches, strict=True))


def _cost(problem: CanonicalConvolution, best: Best) -> float:
    depthwise = problem.feature_groups == problem.in_features > 1
    if depthwise:
        return CALL + PREPARE + arithmetic(problem.products, DEPTHWISE_RATE) + writing(problem)
    wide = whole(problem.out_features // problem.feature_groups, WIDTH) * problem.feature_groups
    products = problem.products * wide // problem.out_features
    return CALL + PREPARE + arithmetic(products, RATE) + writing(problem)


def _emit(lhs: jax.Array, rhs: jax.Array, problem: CanonicalConvolution, solve: Solve) -> jax.Array:
    return convolution(lhs, rhs, problem)


ONEDNN_CONVOLUTION = Plan(
    "onednn",
    "oneDNN's kernels, compiled into XLA, run on all cores, where XLA's own convolution runs on one",
    _applies,
    _cost,
    _emit,
    calls=ONEDNN,
)
PLANS = (ONEDNN_CONVOLUTION,)
