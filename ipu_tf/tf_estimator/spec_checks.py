"""Checks the fields of an `EstimatorSpec`: loss, training op, predictions, metrics, hooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def require_tensor_or_operation(value: Any, name: str) -> Any:
    """`value`, if it is a tensor or an operation.

    Raises:
        TypeError: if it is not.
    """
    if not (isinstance(value, tf.Operation) or tf.is_tensor(value)):
        raise TypeError(f"{name} must be Operation or Tensor, given: {value}")
    return value


def require_tensor(value: Any, name: str) -> Any:
    """`value`, if it is a tensor.

    Raises:
        TypeError: if it is not.
    """
    if not tf.is_tensor(value):
        raise TypeError(f"{name} must be Tensor, given: {value}")
    return value


def checked_train_op(train_op: Any, required: bool) -> Any:
    """A training step, as it is.

    Raises:
        ValueError: if there has to be one and there is none.
        TypeError: if it is no tensor and no operation.
    """
    if train_op is None:
        if required:
            raise ValueError("Missing train_op.")
        return None
    return require_tensor_or_operation(train_op, "train_op")


def checked_loss(loss: Any, required: bool) -> tf.Tensor | None:
    """A loss as a scalar.

    Raises:
        ValueError: if there has to be one and there is none, or it has several elements.
        TypeError: if it is no tensor.
    """
    if loss is None:
        if required:
            raise ValueError("Missing loss.")
        return None
    elements = require_tensor(loss, "loss").shape.num_elements()
    if elements not in (1, None):
        raise ValueError(f"Loss must be scalar, given: {loss}")
    return loss if loss.shape.rank == 0 else tf.reshape(loss, [])


def checked_predictions(predictions: Any, required: bool) -> Any:
    """Predictions, as they are.

    Raises:
        ValueError: if there have to be some and there are none.
        TypeError: if they are neither a tensor nor a dictionary of tensors.
    """
    if predictions is None:
        if required:
            raise ValueError("Missing predictions.")
        return {}
    if isinstance(predictions, dict):
        return {key: require_tensor(value, f"predictions[{key!r}]") for key, value in predictions.items()}
    return require_tensor(predictions, "predictions")


def checked_metrics(metrics: Any) -> dict[str, tuple[Any, Any]]:
    """Metrics by name, each a pair of value and update op.

    Raises:
        TypeError: if they are something else. Metric objects of Keras, which have no update op, are refused too.
    """
    if metrics is None:
        return {}
    if not isinstance(metrics, dict):
        raise TypeError(f"eval_metric_ops must be a dict, given: {metrics}")
    for key, metric in metrics.items():
        if not isinstance(metric, tuple) or len(metric) != 2:
            raise TypeError(
                "Values of eval_metric_ops must be (metric_value, update_op) tuples, given: "
                f"{metric} for key: {key}. Use a metric of tf.compat.v1.metrics."
            )
        require_tensor(metric[0], f"The value of the metric {key!r}")
        require_tensor_or_operation(metric[1], f"The update op of the metric {key!r}")
    return metrics


def checked_hooks(hooks: Sequence[Any] | None) -> tuple[Any, ...]:
    """Hooks as a tuple.

    Raises:
        TypeError: if one of them is no `SessionRunHook`.
    """
    for hook in hooks or ():
        if not isinstance(hook, tf.compat.v1.train.SessionRunHook):
            raise TypeError(f"All hooks must be SessionRunHook instances, given: {hook}")
    return tuple(hooks or ())
