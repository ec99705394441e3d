"""`IPUPipelineEstimator`: an estimator whose model is a pipeline of stages.

dataset of input_fn ──► infeed ──► stage 0 ──► stage 1 ──► ... ──► outfeed ──► loss, metrics, predictions
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu_tf._estimators.base import IPUEstimatorBase
from ipu_tf._estimators.pipeline_loops import PipelineEvaluationLoop, PipelinePredictionLoop, PipelineTrainingLoop
from ipu_tf._estimators.pipeline_spec import IPUPipelineEstimatorSpec
from ipu_tf.ipu_run_config import RunConfig
from ipu_tf.tf_estimator.model_fn import ModeKeys

__all__ = ["IPUPipelineEstimator", "IPUPipelineEstimatorSpec"]


class IPUPipelineEstimator(IPUEstimatorBase):
    """Trains, evaluates and predicts with a pipelined model.

    A step is a micro-batch: `iterations_per_loop`, and so the numbers of steps, are multiples of the
    `gradient_accumulation_count` of the spec.

    Args:
        model_fn: takes `mode`, `params` and `config` if it names them, and gives an `IPUPipelineEstimatorSpec`. What
            the dataset gives goes to the first stage.
        model_dir: the folder of checkpoints and summaries; by default `config.model_dir`, else a temporary one.
        config: an `ipu_run_config.RunConfig`, whose `num_shards` are the IPUs of the pipeline.
        params: hyper-parameters for `model_fn` and `input_fn`.
        warm_start_from: a checkpoint, a folder of some, or `tf.estimator.WarmStartSettings`.

    Raises:
        ValueError: for a wrong `config` or `params`.
    """

    loops = {
        ModeKeys.TRAIN: PipelineTrainingLoop,
        ModeKeys.EVAL: PipelineEvaluationLoop,
        ModeKeys.PREDICT: PipelinePredictionLoop,
    }

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: Any = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: Any = None,
    ) -> None:
        super().__init__(model_fn, model_dir, config, params, warm_start_from)

    def _check_model_fn(self, model_fn: Callable[..., Any], params: Any) -> None:
        """Does nothing: the `model_fn` is checked when it is called."""
