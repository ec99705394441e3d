"""`IPUEstimatorSpec`: return type of the `model_fn` of an `IPUEstimator`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ipu_tf.tf_estimator import spec_checks
from ipu_tf.tf_estimator.model_fn import ModeKeys


class _SpecFields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    eval_metrics: Any
    host_call: Any
    training_hooks: tuple[Any, ...]
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class IPUEstimatorSpec(_SpecFields):
    """An `EstimatorSpec` with functions that run on the host.

    Args:
        mode: one of `tf.estimator.ModeKeys`.
        predictions: as in `EstimatorSpec`.
        loss: as in `EstimatorSpec`.
        train_op: as in `EstimatorSpec`.
        eval_metric_ops: name -> (value, update_op), computed on the device.
        eval_metrics: `(function, tensors)`: the function gets the tensors on the host, by position from a list or by
            name from a dictionary, with a leading dimension for the iterations of the loop; it gives a dictionary
            name -> (value, update_op). Either this or `eval_metric_ops`.
        host_call: `(function, tensors)`: in training, after each run of the program, the function gets the tensors of a
            list on the host, and gives an operation or a tensor. With several replicas they are averaged.
        training_hooks: `SessionRunHook`s.
        evaluation_hooks: `SessionRunHook`s.
        prediction_hooks: `SessionRunHook`s.

    Raises:
        ValueError: if what the mode needs is missing.
        TypeError: if an argument is of the wrong kind.
    """

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        eval_metrics: tuple[Callable[..., Any], Any] | None = None,
        host_call: tuple[Callable[..., Any], list[Any]] | None = None,
        training_hooks: Sequence[Any] | None = None,
        evaluation_hooks: Sequence[Any] | None = None,
        prediction_hooks: Sequence[Any] | None = None,
    ) -> IPUEstimatorSpec:
        _check_call(host_call, "host_call", (list,))
        _check_call(eval_metrics, "eval_metrics", (list, dict))
        return super().__new__(
            cls,
            mode=mode,
            predictions=spec_checks.checked_predictions(predictions, required=mode == ModeKeys.PREDICT),
            loss=spec_checks.checked_loss(loss, required=mode != ModeKeys.PREDICT),
            train_op=spec_checks.checked_train_op(train_op, required=mode == ModeKeys.TRAIN),
            eval_metric_ops=spec_checks.checked_metrics(eval_metric_ops),
            eval_metrics=eval_metrics,
            host_call=host_call,
            training_hooks=spec_checks.checked_hooks(training_hooks),
            evaluation_hooks=spec_checks.checked_hooks(evaluation_hooks),
            prediction_hooks=spec_checks.checked_hooks(prediction_hooks),
        )


def _check_call(call: Any, name: str, kinds: tuple[type, ...]) -> None:
    if call is None:
        return
    if not isinstance(call, tuple):
        raise TypeError(f"`{name}` must be a tuple")
    if len(call) != 2:
        raise ValueError(f"`{name}` must have two elements")
    if not callable(call[0]):
        raise TypeError(f"first element in `{name}` must be callable")
    if not isinstance(call[1], kinds):
        raise TypeError(f"second element in `{name}` must be a {' or '.join(kind.__name__ for kind in kinds)}")
