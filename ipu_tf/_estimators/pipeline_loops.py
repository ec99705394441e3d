"""Training, evaluation and prediction loops of an `IPUPipelineEstimator`, each one pipeline."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf._estimators.model import HOST, EstimatorLoop, EstimatorModel
from ipu_tf._estimators.pipeline_spec import IPUPipelineEstimatorSpec
from ipu_tf._tracing.element_arguments import body_arguments
from ipu_tf.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_tf.ops import pipelining_ops
from ipu_tf.tf_estimator.calls import argument_names, call_with
from ipu_tf.tf_estimator.model_fn import LOSS_METRIC_KEY, EstimatorSpec, ModeKeys


class PipelineLoop(EstimatorLoop):
    """A pipeline over the batches of an infeed, with an outfeed."""

    _spec: IPUPipelineEstimatorSpec

    def _pipeline(self, spec: IPUPipelineEstimatorSpec, name: str, **arguments: Any) -> tf.Operation:
        self._spec = spec
        self.outfeed = IPUOutfeedQueue(device_ordinal=self.model.run.ordinal)
        return pipelining_ops.pipeline(
            computational_stages=spec.computational_stages,
            gradient_accumulation_count=spec.gradient_accumulation_count,
            repeat_count=repeat_count(self.model, spec),
            infeed_queue=self.infeed,
            outfeed_queue=self.outfeed,
            device_mapping=spec.device_mapping,
            name=f"ipu_pipeline_estimator_{name}",
            **arguments,
            **spec.pipeline_op_kwargs,
        )


class PipelineTrainingLoop(PipelineLoop):
    """Trains; the outfeed gets the sum of the losses of each update."""

    def program(self) -> tf.Operation:
        """The operation that trains."""
        spec = pipeline_spec(self.model)
        self.hooks = spec.training_hooks
        return self._pipeline(
            spec,
            "train",
            optimizer_function=spec.optimizer_function,
            outfeed_loss=True,
            accumulate_outfeed=True,
            accumulate_outfeed_dtype=spec.loss_accumulator_dtype,
            reduction_method=spec.reduction_method,
        )

    def finish(self, compiled: Any) -> EstimatorSpec:
        """The mean loss of the micro-batches of a run."""
        sums = self.dequeued(compiled)
        with tf.device(HOST):
            loss = tf.reduce_mean(tf.cast(sums, tf.float32)) / self._spec.gradient_accumulation_count
        return EstimatorSpec(ModeKeys.TRAIN, loss=loss, train_op=compiled, training_hooks=self.hooks)


class PipelineEvaluationLoop(PipelineLoop):
    """Feeds the outputs of the last stage to the outfeed; the host computes the metrics."""

    def program(self) -> tf.Operation:
        """The operation that evaluates."""
        spec = pipeline_spec(self.model)
        self.hooks = spec.evaluation_hooks
        return self._pipeline(spec, "eval", accumulate_outfeed=False)

    def finish(self, compiled: Any) -> EstimatorSpec:
        """Loss and metrics."""
        positional, named = body_arguments(self.dequeued(compiled))
        assert self._spec.eval_metrics_fn is not None
        with tf.device(HOST):
            metrics = self._spec.eval_metrics_fn(*positional, **named)
            if not isinstance(metrics, dict):
                raise TypeError(f"The `eval_metrics_fn` must return a dict, but got {type(metrics)}.")
            if LOSS_METRIC_KEY not in metrics:
                raise KeyError(f"The dict returned from `eval_metrics_fn` must contain '{LOSS_METRIC_KEY}'.")
            loss = tf.reduce_mean(metrics[LOSS_METRIC_KEY])
        others = {name: metric for name, metric in metrics.items() if name != LOSS_METRIC_KEY}
        return EstimatorSpec(ModeKeys.EVAL, loss=loss, eval_metric_ops=others, evaluation_hooks=self.hooks)


class PipelinePredictionLoop(PipelineLoop):
    """Feeds predictions, the output of the last stage, to the outfeed."""

    def program(self) -> tf.Operation:
        """The operation that predicts."""
        spec = pipeline_spec(self.model)
        self.hooks = spec.prediction_hooks
        return self._pipeline(spec, "predict", accumulate_outfeed=False)

    def finish(self, compiled: Any) -> EstimatorSpec:
        """Predictions with a leading dimension for the iterations."""
        predictions = _one(self.dequeued(compiled))
        return EstimatorSpec(ModeKeys.PREDICT, predictions=predictions, prediction_hooks=self.hooks)

    def leftovers(self) -> Any:
        """The predictions that a run made before it failed for want of data."""
        return _one(self.outputs())


def _one(predictions: Any) -> Any:
    if not isinstance(predictions, (list, tuple)):
        return predictions
    if len(predictions) != 1:
        raise ValueError(
            f"The last computational stage must return exactly one prediction tensor, but got {len(predictions)}"
        )
    return predictions[0]


def pipeline_spec(model: EstimatorModel) -> IPUPipelineEstimatorSpec:
    """Calls the `model_fn` and checks its spec.

    Raises:
        ValueError: if it wants features or labels, or the stages need another number of IPUs than there are.
        TypeError: if it gives something else.
    """
    if not {"features", "labels"}.isdisjoint(argument_names(model.model_fn)):
        raise ValueError(
            "The `model_fn` used with `IPUPipelineEstimator` must not have `features` or `labels` arguments. They are "
            "instead passed to the first pipeline stage function."
        )
    spec = call_with(model.model_fn, {"mode": model.mode, "params": model.params, "config": model.config})
    if not isinstance(spec, IPUPipelineEstimatorSpec):
        raise TypeError("The `model_fn` used with `IPUPipelineEstimator` must return `IPUPipelineEstimatorSpec`.")
    _check_devices(spec, model.run.num_shards)
    return spec


def repeat_count(model: EstimatorModel, spec: IPUPipelineEstimatorSpec) -> int:
    """Returns the number of weight updates of a loop.

    Raises:
        ValueError: if its iterations cannot be divided into them.
    """
    iterations, count = model.run.iterations_per_loop, spec.gradient_accumulation_count
    if iterations < count:
        raise ValueError(
            f"`IPURunConfig.iterations_per_loop` (got {iterations}) cannot be less than `gradient_accumulation_count` "
            f"(got {count})"
        )
    if iterations % count:
        raise ValueError(
            f"`IPURunConfig.iterations_per_loop` (got {iterations}) must be divisible by `gradient_accumulation_count` "
            f"(got {count})"
        )
    return iterations // count


def _check_devices(spec: IPUPipelineEstimatorSpec, shards: int) -> None:
    stages = len(spec.computational_stages)
    needed = stages if spec.device_mapping is None else len(set(tf.nest.flatten(spec.device_mapping)))
    if not shards // 2 < needed <= shards:
        raise ValueError(
            f"This pipeline requires {needed} devices, but `IPURunConfig.num_shards` was set to {shards} "
            "(num_shards/2 < pipeline_devices <= num_shards)."
        )
