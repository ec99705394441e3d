"""Runs the training of an estimator in a monitored session, which saves its checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.tf_estimator.built_model import BuiltModel
from ipu_tf.tf_estimator.end_of_data import EndOfData
from ipu_tf.tf_estimator.model_fn import LOSS_METRIC_KEY, EstimatorSpec
from ipu_tf.tf_estimator.run_config import RunConfig

tf1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Training:
    """Arguments of one call of `Estimator.train`.

    Attributes:
        config: how often it saves and reports.
        model_dir: where.
        step_hook: counts the steps, and stops at the last one.
        hooks: the caller's hooks.
        listeners: the caller's `CheckpointSaverListener`s.
    """

    config: RunConfig
    model_dir: str
    step_hook: Any
    hooks: Sequence[Any] = ()
    listeners: Sequence[Any] = ()


def run_training(built: BuiltModel, training: Training) -> np.ndarray | None:
    """Trains; returns the loss of the last run, None if there was none.

    Raises:
        EndOfData: if the data ended before the steps did. Until then the model is trained and saved.
        ValueError: for listeners where there are no checkpoints.
    """
    spec = built.spec
    if not any(summary.op.name == LOSS_METRIC_KEY for summary in tf1.get_collection(tf1.GraphKeys.SUMMARIES)):
        tf1.summary.scalar(LOSS_METRIC_KEY, spec.loss)
    loss, ended = None, None
    with _session(built, training) as session:
        while not session.should_stop():
            try:
                _, loss = session.run([spec.train_op, spec.loss])
            except tf.errors.OutOfRangeError as error:
                if built.endless:
                    ended = EndOfData("training", error)
                break
    if ended is not None:
        raise ended
    return loss


def _session(built: BuiltModel, training: Training) -> Any:
    """Returns the session that trains, with its hooks."""
    spec, config = built.spec, training.config
    scaffold = spec.scaffold or tf1.train.Scaffold()
    if scaffold.saver is None and not tf1.get_collection(tf1.GraphKeys.SAVERS):
        tf1.add_to_collection(tf1.GraphKeys.SAVERS, _saver(config))
    return tf1.train.MonitoredTrainingSession(
        checkpoint_dir=training.model_dir,
        scaffold=scaffold,
        hooks=[*built.hooks, *training.hooks, *_reports(spec, config), *spec.training_hooks],
        # The global step comes first: checkpoints and summaries of the same run then bear the new one.
        chief_only_hooks=[training.step_hook, *spec.training_chief_hooks, *_savers(spec, training, scaffold)],
        save_checkpoint_secs=0,
        save_summaries_steps=config.save_summary_steps,
        config=config.session_options(),
        max_wait_secs=config.session_creation_timeout_secs,
        log_step_count_steps=config.log_step_count_steps,
    )


def _saver(config: RunConfig) -> Any:
    return tf1.train.Saver(
        sharded=True,
        max_to_keep=config.keep_checkpoint_max,
        keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
        defer_build=True,
        save_relative_paths=True,
    )


def _reports(spec: EstimatorSpec, config: RunConfig) -> list[Any]:
    """Hooks that stop at a loss which is no number, and log the others."""
    hooks = [tf1.train.NanTensorHook(spec.loss)]
    if config.log_step_count_steps:
        shown = {"loss": spec.loss, "step": tf1.train.get_global_step()}
        hooks.append(tf1.train.LoggingTensorHook(shown, every_n_iter=config.log_step_count_steps))
    return hooks


def _savers(spec: EstimatorSpec, training: Training, scaffold: Any) -> list[Any]:
    """Returns the hook that saves, unless there is one already; listeners are added either way."""
    config = training.config
    given = [*training.hooks, *spec.training_hooks, *spec.training_chief_hooks]
    theirs = [hook for hook in given if isinstance(hook, tf1.train.CheckpointSaverHook)]
    if theirs:
        # The one way TensorFlow has to add listeners to a hook that exists.
        theirs[0]._listeners.extend(training.listeners)
        return []
    if config.save_checkpoints_secs or config.save_checkpoints_steps:
        return [
            tf1.train.CheckpointSaverHook(
                training.model_dir,
                save_secs=config.save_checkpoints_secs,
                save_steps=config.save_checkpoints_steps,
                scaffold=scaffold,
                listeners=list(training.listeners),
                save_graph_def=config.checkpoint_save_graph_def,
            )
        ]
    if training.listeners:
        raise ValueError(
            "There should be a CheckpointSaverHook to use saving_listeners. Please set one of the "
            "RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
        )
    return []
