"""`IPUEstimator`: an estimator whose model trains, evaluates and predicts in loops on the device.

dataset of input_fn ──► infeed ──► loop over model_fn on the device ──► loss, metrics, predictions ──► session hooks
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu_tf._estimators.base import IPUEstimatorBase
from ipu_tf._estimators.loops import EvaluationLoop, PredictionLoop, TrainingLoop
from ipu_tf._estimators.spec import IPUEstimatorSpec
from ipu_tf.ipu_run_config import RunConfig
from ipu_tf.tf_estimator.model_fn import ModeKeys

__all__ = ["IPUEstimator", "IPUEstimatorSpec"]


class IPUEstimator(IPUEstimatorBase):
    """Trains, evaluates and predicts with a model that a function builds, in loops on the device.

    The `model_fn` is compiled: it must not pass the global step to an optimizer, since the estimator advances it, by
    `iterations_per_loop` after each run. The loss it reports is the mean over the loop. With several replicas each of
    them takes batches of its own; wrap the optimizer in a `CrossReplicaOptimizer`.

    Args:
        model_fn: takes `features` and, if it names them, `labels`, `mode`, `params` and `config`; gives an
            `EstimatorSpec` or an `IPUEstimatorSpec`.
        model_dir: the folder of checkpoints and summaries; by default `config.model_dir`, else a temporary one.
        config: an `ipu_run_config.RunConfig`.
        params: hyper-parameters for `model_fn` and `input_fn`.
        warm_start_from: a checkpoint, a folder of some, or `tf.estimator.WarmStartSettings`.
        train_batch_size: the batch size of all replicas together, for training; `input_fn` and `model_fn` get that of
            one as `params["batch_size"]`.
        eval_batch_size: so for evaluation.
        predict_batch_size: so for prediction.

    Raises:
        ValueError: for a wrong `config`, `params` or batch size, or a `model_fn` that cannot be called so.
        NotImplementedError: for `iterations_per_loop` above 1 with a distribution strategy.

    Example:
        >>> import numpy as np
        >>> import tensorflow as tf
        >>> from ipu_tf.ipu_run_config import IPURunConfig, RunConfig
        >>> from ipu_tf.tf_estimator import EstimatorSpec
        >>> def model_fn(features, mode):
        ...     return EstimatorSpec(mode, predictions=2.0 * features)
        >>> def input_fn():
        ...     return tf.data.Dataset.from_tensor_slices(np.float32([[1, 2], [3, 4]]))
        >>> estimator = IPUEstimator(model_fn, config=RunConfig(IPURunConfig(iterations_per_loop=2)))
        >>> [float(value) for value in estimator.predict(input_fn)]
        [2.0, 4.0, 6.0, 8.0]
    """

    loops = {ModeKeys.TRAIN: TrainingLoop, ModeKeys.EVAL: EvaluationLoop, ModeKeys.PREDICT: PredictionLoop}

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
    ) -> None:
        super().__init__(
            model_fn,
            model_dir,
            config,
            params,
            warm_start_from,
            train_batch_size,
            eval_batch_size,
            predict_batch_size,
        )
        distributed = self._config.train_distribute or self._config.eval_distribute
        iterations = self._config.ipu_run_config.iterations_per_loop
        if distributed and iterations > 1:
            raise NotImplementedError(f"iterations_per_loop > 1 (got {iterations}) not supported with distribution")
