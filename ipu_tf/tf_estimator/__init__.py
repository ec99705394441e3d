"""Compatibility module for `tf.estimator`, which TensorFlow dropped: the part that IPU programs use.

`Estimator` runs a `model_fn` in TensorFlow's own monitored sessions on the host: checkpoints, summaries and hooks are
`tf.compat.v1.train`'s. `ipu_tf.ipu_estimator.IPUEstimator` is the one whose loops run on the device.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.tf_estimator import inputs
from ipu_tf.tf_estimator.estimator import Estimator
from ipu_tf.tf_estimator.model_fn import EstimatorSpec, ModeKeys
from ipu_tf.tf_estimator.run_config import RunConfig
from ipu_tf.tf_estimator.train_and_evaluate import EvalSpec, TrainSpec, train_and_evaluate
from ipu_tf.tf_estimator.warm_start import WarmStartSettings

__all__ = [
    "Estimator",
    "EstimatorSpec",
    "EvalSpec",
    "ModeKeys",
    "RunConfig",
    "TrainSpec",
    "WarmStartSettings",
    "inputs",
    "train_and_evaluate",
]

_ELSEWHERE = tf.compat.v1.train
#: Names of `tf.estimator` that are TensorFlow's own and still there.
_HOOKS = frozenset(
    {
        "CheckpointSaverHook",
        "CheckpointSaverListener",
        "FeedFnHook",
        "FinalOpsHook",
        "GlobalStepWaiterHook",
        "LoggingTensorHook",
        "NanLossDuringTrainingError",
        "NanTensorHook",
        "ProfilerHook",
        "SecondOrStepTimer",
        "SessionRunArgs",
        "SessionRunContext",
        "SessionRunHook",
        "SessionRunValues",
        "StepCounterHook",
        "StopAtStepHook",
        "SummarySaverHook",
        "VocabInfo",
    }
)


def __getattr__(name: str) -> Any:
    if name in _HOOKS:
        return getattr(_ELSEWHERE, name)
    raise AttributeError(
        f"tf.estimator.{name} is not there: TensorFlow dropped its estimators, and this project has "
        f"{', '.join(__all__)} and the session hooks. Write a model_fn for tf.estimator.Estimator or "
        "ipu.ipu_estimator.IPUEstimator instead."
    )
