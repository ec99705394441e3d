"""`ModeKeys` and `EstimatorSpec`: mode argument and return type of a `model_fn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ipu_tf.tf_estimator import spec_checks

LOSS_METRIC_KEY = "loss"
"""The name of the loss among the results of an evaluation."""


class ModeKeys:
    """Modes of an estimator: the values of a `model_fn`'s argument `mode`."""

    TRAIN = "train"
    EVAL = "eval"
    PREDICT = "infer"


class _SpecFields(NamedTuple):
    mode: str
    predictions: Any
    loss: Any
    train_op: Any
    eval_metric_ops: Any
    export_outputs: Any
    training_chief_hooks: tuple[Any, ...]
    training_hooks: tuple[Any, ...]
    scaffold: Any
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]


class EstimatorSpec(_SpecFields):
    """Return type of a `model_fn`.

    Args:
        mode: one of `ModeKeys`.
        predictions: a tensor or a dictionary of them; needed to predict.
        loss: a tensor with one element; needed to train and to evaluate.
        train_op: a tensor or operation that does one training step; needed to train.
        eval_metric_ops: name -> (value, update_op), as `tf.compat.v1.metrics` give them.
        export_outputs: kept, not used: there is no export of SavedModels.
        training_chief_hooks: `SessionRunHook`s for training; there is one process, the chief.
        training_hooks: `SessionRunHook`s for training.
        scaffold: a `tf.compat.v1.train.Scaffold`.
        evaluation_hooks: `SessionRunHook`s for evaluation.
        prediction_hooks: `SessionRunHook`s for prediction.

    Raises:
        ValueError: if what the mode needs is missing, or the loss has several elements.
        TypeError: if an argument is of the wrong kind.

    Example:
        >>> import tensorflow as tf
        >>> EstimatorSpec(ModeKeys.PREDICT, predictions=tf.constant([1.0])).mode
        'infer'
    """

    def __new__(
        cls,
        mode: str,
        predictions: Any = None,
        loss: Any = None,
        train_op: Any = None,
        eval_metric_ops: Any = None,
        export_outputs: Any = None,
        training_chief_hooks: Sequence[Any] | None = None,
        training_hooks: Sequence[Any] | None = None,
        scaffold: Any = None,
        evaluation_hooks: Sequence[Any] | None = None,
        prediction_hooks: Sequence[Any] | None = None,
    ) -> EstimatorSpec:
        return super().__new__(
            cls,
            mode=mode,
            predictions=spec_checks.checked_predictions(predictions, required=mode == ModeKeys.PREDICT),
            loss=spec_checks.checked_loss(loss, required=mode != ModeKeys.PREDICT),
            train_op=spec_checks.checked_train_op(train_op, required=mode == ModeKeys.TRAIN),
            eval_metric_ops=spec_checks.checked_metrics(eval_metric_ops),
            export_outputs=export_outputs,
            training_chief_hooks=spec_checks.checked_hooks(training_chief_hooks),
            training_hooks=spec_checks.checked_hooks(training_hooks),
            scaffold=scaffold,
            evaluation_hooks=spec_checks.checked_hooks(evaluation_hooks),
            prediction_hooks=spec_checks.checked_hooks(prediction_hooks),
        )
