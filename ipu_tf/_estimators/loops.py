"""Training, evaluation and prediction loops of an `IPUEstimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf import loops
from ipu_tf._estimators.model import HOST, EstimatorLoop, mean_over_loop
from ipu_tf._estimators.model_calls import (
    call_on_element,
    check_global_step_untouched,
    check_replicas_agree,
    needed,
    values_after_updates,
)
from ipu_tf._tracing.element_arguments import body_arguments
from ipu_tf.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue
from ipu_tf.lowering.tensorflow import tf_private
from ipu_tf.tf_estimator.model_fn import EstimatorSpec, ModeKeys
from ipu_tf.tf_estimator.spec_checks import require_tensor, require_tensor_or_operation

_NO_LOSS = 0.0


class TrainingLoop(EstimatorLoop):
    """Loop that sums the losses of its iterations, and calls the model's host call after each run."""

    _host_call: Callable[..., Any] | None = None

    def program(self) -> Any:
        """The mean loss."""
        total = loops.repeat(self.model.run.iterations_per_loop, self._step, [_NO_LOSS], self.infeed)
        return mean_over_loop(self.model, total)

    def _step(self, total: tf.Tensor, *args: Any, **named: Any) -> Any:
        spec = call_on_element(self.model, args, named)
        loss = tf.cast(needed(spec, "loss", "training"), tf.float32)
        train_op = needed(spec, "train_op", "training")
        self.hooks = spec.training_hooks
        sent = self._send(getattr(spec, "host_call", None))
        check_global_step_untouched()
        if self.model.run.num_replicas > 1:
            check_replicas_agree()
        with tf.control_dependencies([train_op, *sent]):
            return total + loss

    def _send(self, host_call: Any) -> list[tf.Operation]:
        """Enqueues the arguments of a host call."""
        if host_call is None:
            return []
        if self.model.run.iterations_per_loop > 1:
            raise ValueError("host_call is not allowed for iterations_per_loop > 1")
        self._host_call, tensors = host_call
        if not tensors:
            return []
        self.outfeed = _outfeed(self, IPUOutfeedMode.LAST)
        return [self.outfeed.enqueue([require_tensor(tensor, "`host_call` argument") for tensor in tensors])]

    def finish(self, compiled: Any) -> EstimatorSpec:
        """Loss and training step; the step is the host call if there is one."""
        [loss] = compiled
        train_op = loss
        if self._host_call is not None:
            arguments = [] if self.outfeed is None else self.dequeued(compiled)
            with tf.device(HOST), tf.control_dependencies(compiled):
                if self.model.run.num_replicas > 1:
                    arguments = [tf.reduce_mean(argument, axis=0) for argument in arguments]
                train_op = require_tensor_or_operation(self._host_call(*arguments), "`host_call` return value")
        return EstimatorSpec(ModeKeys.TRAIN, loss=loss, train_op=train_op, training_hooks=self.hooks)


class EvaluationLoop(EstimatorLoop):
    """Loop that sums the losses of its iterations, and enqueues metrics, or their inputs, to the outfeed."""

    _metrics_fn: Callable[..., Any] | None = None

    def program(self) -> Any:
        """The mean loss."""
        # A model may build its training step in every mode: here it must not run.
        with tf_private.prune_unused():
            total = loops.repeat(self.model.run.iterations_per_loop, self._step, [_NO_LOSS], self.infeed)
        return mean_over_loop(self.model, total)

    def _step(self, total: tf.Tensor, *args: Any, **named: Any) -> Any:
        spec = call_on_element(self.model, args, named)
        loss = tf.cast(needed(spec, "loss", "evaluating"), tf.float32)
        self.hooks = spec.evaluation_hooks
        with _taken(args, named):
            return total + loss, self._enqueue(spec.eval_metric_ops, getattr(spec, "eval_metrics", None))

    def _enqueue(self, metric_ops: Any, metrics: Any) -> tf.Operation:
        if not metric_ops and not metrics:
            raise ValueError("EstimatorSpec must contain either eval_metric_ops or eval_metrics when evaluating")
        if metric_ops and metrics:
            raise ValueError("EstimatorSpec cannot contain both eval_metric_ops and eval_metrics")
        if metrics:
            self.outfeed = _outfeed(self, IPUOutfeedMode.ALL)
            self._metrics_fn, tensors = metrics
            return self.outfeed.enqueue(tensors)
        self.outfeed = _outfeed(self, IPUOutfeedMode.LAST)
        return self.outfeed.enqueue(values_after_updates(metric_ops))

    def finish(self, compiled: Any) -> EstimatorSpec:
        """Loss and metrics."""
        [loss] = compiled
        if self._metrics_fn is not None:
            args, named = body_arguments(self.dequeued(compiled))
            with tf.device(HOST):
                metrics = self._metrics_fn(*args, **named)
        else:
            metrics = self._newest()
        return EstimatorSpec(ModeKeys.EVAL, loss=loss, eval_metric_ops=metrics, evaluation_hooks=self.hooks)

    def _newest(self) -> dict[str, tuple[tf.Tensor, tf.Operation]]:
        """The device's metrics, over replicas their mean. They are read once, at the end: nothing is to be updated."""
        replicated = self.model.run.num_replicas > 1  # outputs have a leading axis of replicas
        with tf.device(HOST):
            return {
                name: (tf.reduce_mean(output, 0) if replicated else output, tf.no_op())
                for name, output in self.outputs().items()
            }


class PredictionLoop(EstimatorLoop):
    """Loop that enqueues predictions to the outfeed."""

    def program(self) -> Any:
        """The operation that predicts."""
        self.outfeed = _outfeed(self, IPUOutfeedMode.ALL)
        with tf_private.prune_unused():
            return loops.repeat(self.model.run.iterations_per_loop, self._step, infeed_queue=self.infeed)

    def _step(self, *args: Any, **named: Any) -> Any:
        spec = call_on_element(self.model, args, named)
        assert self.outfeed is not None
        self.hooks = spec.prediction_hooks
        with _taken(args, named):
            return self.outfeed.enqueue(needed(spec, "predictions", "predicting"))

    def finish(self, compiled: Any) -> EstimatorSpec:
        """Predictions with a leading dimension for the iterations."""
        return EstimatorSpec(ModeKeys.PREDICT, predictions=self.dequeued(compiled), prediction_hooks=self.hooks)

    def leftovers(self) -> Any:
        """Returns the predictions that a run made before its data ended."""
        return self.outputs()


def _outfeed(loop: EstimatorLoop, mode: IPUOutfeedMode) -> IPUOutfeedQueue:
    return IPUOutfeedQueue(outfeed_mode=mode, device_ordinal=loop.model.run.ordinal)


def _taken(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Makes ops built within it depend on the element, so that it is dequeued even if it is not used."""
    return tf.control_dependencies([tensor.op for tensor in tf.nest.flatten([args, named])])
