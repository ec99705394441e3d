"""TensorFlow's ops that XLA has no kernel for, or other numbers: in programs they are made of others.

Each is replaced where TensorFlow's Python code adds it to a graph, so that all of TensorFlow's functions reach it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_graphs, tf_patches, tf_values
from ipu_tf.lowering.tensorflow.session_graph import is_ipu

OPS = (
    "Bucketize",
    "dense_bincount",
    "ImageProjectiveTransformV3",
    "in_top_kv2",
    "log_uniform_candidate_sampler",
    "mean",
    "random_gamma",
    "random_poisson_v2",
    "reciprocal_grad",
    "resize_bilinear_grad",
    "resize_nearest_neighbor",
    "rsqrt_grad",
    "selu_grad",
    "sqrt_grad",
    "stateless_multinomial",
    "stateless_random_binomial",
    "stateless_random_gamma_v3",
    "stateless_random_normal_v2",
    "stateless_random_poisson",
    "stateless_random_uniform_v2",
    "top_kv2",
    "uniform_candidate_sampler",
    "upper_bound",
)
"""Functions of TensorFlow that add an op; `op_functions` has one of the same arguments for each."""


def install() -> None:
    """Replaces the ops, and has functions traced again for the device. Calling it again changes nothing."""
    tf_patches.patch_op_functions({name: functools.partial(_in_programs, name) for name in OPS})
    tf_patches.patch_function_traces(_traced_for_device)


def op_functions() -> dict[str, Callable[..., Any]]:
    """Returns this package's functions by the names in `OPS`."""
    # Only now: this module is imported together with TensorFlow, which is slow enough.
    from ipu_tf._ops import (
        bincount,
        candidate_sampling,
        image_resize,
        image_transform,
        random_samples,
        stateless_random,
        stock_numbers,
    )

    return {
        **candidate_sampling.SAMPLERS,
        **image_resize.OPS,
        **random_samples.SAMPLES,
        **stateless_random.DRAWS,
        **stock_numbers.OPS,
        "dense_bincount": bincount.dense_bincount,
        "ImageProjectiveTransformV3": image_transform.image_projective_transform,
    }


def _in_programs(name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps TensorFlow's function, which serves the host: inside device programs it is this package's."""

    @functools.wraps(stock)
    def op(*args: Any, **kwargs: Any) -> Any:
        return (op_functions()[name] if _traced_for_device() else stock)(*args, **kwargs)

    return op


def _traced_for_device() -> bool:
    """Returns whether ops are made for the device: not for TensorFlow's own XLA, which keeps its numbers."""
    if tf_values.executing_eagerly():
        return False
    return tf_graphs.is_traced_for_device(tf.compat.v1.get_default_graph()) or is_ipu(tf_values.enclosing_device())
