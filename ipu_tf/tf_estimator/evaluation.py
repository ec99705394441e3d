"""Runs the evaluation of an estimator in a monitored session."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.tf_estimator.built_model import BuiltModel
from ipu_tf.tf_estimator.end_of_data import EndOfData
from ipu_tf.tf_estimator.hooks import StartStepHook
from ipu_tf.tf_estimator.model_fn import LOSS_METRIC_KEY
from ipu_tf.tf_estimator.run_config import RunConfig

tf1 = tf.compat.v1


def run_evaluation(
    built: BuiltModel, config: RunConfig, checkpoint: str | None, hooks: Sequence[Any]
) -> dict[str, Any]:
    """Evaluates; returns the metrics by name, the loss and the global step among them.

    Args:
        built: the model.
        config: how sessions are made.
        checkpoint: what the variables are restored from; None for their initial values.
        hooks: the caller's, and the one that stops.

    Raises:
        ValueError: if a metric has the name of the loss.
        EndOfData: if the data ended before the steps did.
    """
    metrics = _with_loss(built)
    update = tf.group(*(update for _, update in metrics.values()))
    start, final = StartStepHook(), tf1.train.FinalOpsHook({name: value for name, (value, _) in metrics.items()})
    creator = tf1.train.ChiefSessionCreator(
        scaffold=built.spec.scaffold or tf1.train.Scaffold(),
        checkpoint_filename_with_path=checkpoint,
        config=config.session_options(),
    )
    every = [start, *built.hooks, *hooks, *built.spec.evaluation_hooks, final]
    with tf1.train.MonitoredSession(creator, hooks=every) as session:
        while not session.should_stop():
            try:
                session.run(update)
            except tf.errors.OutOfRangeError as error:
                if built.endless:
                    raise EndOfData("evaluation", error) from error
                break
    return {**final.final_ops_values, tf1.GraphKeys.GLOBAL_STEP: start.step}


def write_summary(folder: str, results: Mapping[str, Any]) -> None:
    """Writes the numbers among an evaluation's results as a summary at their global step."""
    summary = tf1.Summary()
    for name, value in results.items():
        if name != tf1.GraphKeys.GLOBAL_STEP and isinstance(value, (numbers.Real, np.number)):
            summary.value.add(tag=name, simple_value=float(np.asarray(value)))
    # TensorFlow refuses these writers where ops run eagerly.
    with tf.Graph().as_default():
        writer = tf1.summary.FileWriterCache.get(folder)
        writer.add_summary(summary, results[tf1.GraphKeys.GLOBAL_STEP])
        writer.flush()


def _with_loss(built: BuiltModel) -> dict[str, tuple[Any, Any]]:
    metrics = dict(built.spec.eval_metric_ops)
    if LOSS_METRIC_KEY in metrics:
        raise ValueError(f'Metric with name "{LOSS_METRIC_KEY}" is not allowed, because Estimator already defines it.')
    metrics[LOSS_METRIC_KEY] = tf1.metrics.mean(built.spec.loss)
    return metrics
