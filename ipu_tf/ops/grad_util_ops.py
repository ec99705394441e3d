"""`capture_upstream_gradients`: captures the gradient of a tensor."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.eager.backprop import record_captured_gradients


def capture_upstream_gradients(args: Any, tag: str = "") -> Any:
    """Identity whose gradient is captured under a tag.

    The gradient is kept under `tag` by the innermost `GradientCaptureContext` or `GradientCaptureTape`, and flows on
    unchanged.

    Args:
        args: a tensor, or a structure of them: one gradient is kept for each.
        tag: the name to find the gradients by. Calls with the same tag add to the same list.

    Returns:
        Tensors equal to `args`, in its structure.

    Raises:
        RuntimeError: when a gradient arrives and there is no context to keep it.
    """

    @tf.custom_gradient
    def captured(*tensors: tf.Tensor) -> Any:
        def gradient(*upstream: tf.Tensor) -> Any:
            record_captured_gradients(tag, list(upstream))
            return upstream

        return [tf.identity(tensor) for tensor in tensors], gradient

    tensors = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(args)]
    return tf.nest.pack_sequence_as(args, captured(*tensors))
