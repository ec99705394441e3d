"""Replaces TensorFlow's candidate samplers, which have no XLA kernel, inside device programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf.lowering.tensorflow import tf_private, tf_values
from ipu_tf.lowering.tensorflow.session_graph import is_ipu


def on_devices(name: str, stock: Callable[..., Any]) -> Callable[..., Any]:
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


def _in_program() -> bool:
    if tf_values.executing_eagerly():
        return False
    return tf_private.in_program(tf.compat.v1.get_default_graph()) or is_ipu(tf_values.current_device())
