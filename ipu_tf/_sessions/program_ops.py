"""TensorFlow's ops that XLA has no kernel for: in programs they are made of others.

Each is replaced where TensorFlow's Python code adds it to a graph, so that all of TensorFlow's functions reach it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf._patches.installation import replace_in
from ipu_tf.lowering.tensorflow import tf_graphs, tf_patches, tf_values
from ipu_tf.lowering.tensorflow.session_graph import is_ipu

RANDOM_OPS = (
    "random_gamma",
    "random_poisson_v2",
    "stateless_random_gamma_v3",
    "stateless_random_poisson",
    "stateless_random_binomial",
)
"""Ops that `ipu_tf/_ops/random_samples.py` has functions of the same names for."""


def install() -> None:
    """Replaces the ops. Calling it again changes nothing."""
    tf_patches.patch_candidate_samplers(candidate_sampler_on_devices)
    replace_in(tf.raw_ops, "ImageProjectiveTransformV3", image_transform_on_devices)
    tf_patches.patch_stateless_random(stateless_random_on_devices)
    tf_patches.patch_op_functions({name: functools.partial(_random_op, name) for name in RANDOM_OPS})
    tf_patches.patch_op_functions({"dense_bincount": _bincount})
    tf_patches.patch_function_traces(_traced_for_device)


def candidate_sampler_on_devices(name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a raw candidate sampler: inside device programs it uses this package's.

    Args:
        name: `uniform_candidate_sampler` or `log_uniform_candidate_sampler`.
        stock: TensorFlow's own, which serves the host.
    """

    def sampler(
        true_classes: Any,
        num_true: int,
        num_sampled: int,
        unique: bool,
        range_max: int,
        seed: int = 0,
        seed2: int = 0,
        name: str | None = None,
    ) -> Any:
        if not _in_program():
            return stock(true_classes, num_true, num_sampled, unique, range_max, seed, seed2, name)
        # Only now: this module is imported together with TensorFlow, which is slow enough.
        from ipu_tf._ops import candidate_sampling

        # TensorFlow asks for a seed of the op's own by two zeros.
        combined = (seed or 0) + (seed2 or 0) or None
        ours = getattr(candidate_sampling, kind)
        return ours(true_classes, num_true, num_sampled, unique, range_max, combined, name)

    kind = name
    return sampler


def image_transform_on_devices(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `tf.raw_ops.ImageProjectiveTransformV3`: inside device programs it uses this package's.

    Args:
        stock: TensorFlow's own, which serves the host.
    """

    @functools.wraps(stock)
    def transform(*args: Any, **kwargs: Any) -> Any:
        if not _in_program():
            return stock(*args, **kwargs)
        # Only now: this module is imported together with TensorFlow, which is slow enough.
        from ipu_tf._ops.image_transform import image_projective_transform

        return image_projective_transform(*args, **kwargs)

    return transform


def stateless_random_on_devices(name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a raw op of `tf.random.stateless_*`: inside device programs it draws the numbers of the CPU's kernels.

    Args:
        name: of the raw op.
        stock: TensorFlow's own, which serves the host, and what has no kernel there: float64, other algorithms.
    """

    @functools.wraps(stock)
    def draw(*args: Any, **kwargs: Any) -> Any:
        if not _traced_for_device():
            return stock(*args, **kwargs)
        # Only now: this module is imported together with TensorFlow, which is slow enough.
        from ipu_tf._ops import stateless_random

        known = stateless_random.is_of_cpu(kwargs.get("dtype", tf.float32), kwargs.get("alg"))
        return (stateless_random.DRAWS[name] if known else stock)(*args, **kwargs)

    return draw


def _random_op(name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def sample(*args: Any, **kwargs: Any) -> Any:
        if not _traced_for_device():
            return stock(*args, **kwargs)
        # Only now: this module is imported together with TensorFlow, which is slow enough.
        from ipu_tf._ops import random_samples

        return getattr(random_samples, name)(*args, **kwargs)

    return sample


def _bincount(stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def bincount(*args: Any, **kwargs: Any) -> Any:
        if not _traced_for_device():
            return stock(*args, **kwargs)
        # Only now: this module is imported together with TensorFlow, which is slow enough.
        from ipu_tf._ops.bincount import dense_bincount

        return dense_bincount(stock, *args, **kwargs)

    return bincount


def _in_program() -> bool:
    if tf_values.executing_eagerly():
        return False
    return tf_graphs.in_program(tf.compat.v1.get_default_graph()) or is_ipu(tf_values.enclosing_device())


def _traced_for_device() -> bool:
    """Returns whether ops are made for the device: not for TensorFlow's own XLA, which keeps its numbers."""
    if tf_values.executing_eagerly():
        return False
    return tf_graphs.is_traced_for_device(tf.compat.v1.get_default_graph()) or is_ipu(tf_values.enclosing_device())
