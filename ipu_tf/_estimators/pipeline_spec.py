"""`IPUPipelineEstimatorSpec`: return type of the `model_fn` of an `IPUPipelineEstimator`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ipu_tf._arguments.counts import checked_count
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_tf.tf_estimator.model_fn import ModeKeys
from ipu_tf.tf_estimator.spec_checks import checked_hooks


class _SpecFields(NamedTuple):
    mode: str
    computational_stages: Sequence[Any]
    gradient_accumulation_count: int
    eval_metrics_fn: Callable[..., Any] | None
    optimizer_function: Callable[..., Any] | None
    device_mapping: Sequence[Any] | None
    loss_accumulator_dtype: Any
    training_hooks: tuple[Any, ...]
    evaluation_hooks: tuple[Any, ...]
    prediction_hooks: tuple[Any, ...]
    reduction_method: Any
    pipeline_op_kwargs: dict[str, Any]


class IPUPipelineEstimatorSpec(_SpecFields):
    """Stages of a model, and host functions for the results of the last one.

    Args:
        mode: one of `tf.estimator.ModeKeys`.
        computational_stages: the functions of the stages; the first takes what the dataset gives.
        gradient_accumulation_count: micro-batches to a weight update; it has to divide `iterations_per_loop`.
        eval_metrics_fn: takes, on the host, the outputs of the last stage, each with a leading dimension for the
            iterations of the loop; gives a dictionary with `loss`, a tensor, and metrics `(value, update_op)` by name.
            Needed to evaluate.
        optimizer_function: takes the outputs of the last stage and gives an `OptimizerFunctionOutput`. Needed to train.
        device_mapping: the IPU of each stage; by default one IPU a stage.
        loss_accumulator_dtype: dtype in which the losses of an update are added; by default the loss's own.
        training_hooks: `SessionRunHook`s.
        evaluation_hooks: `SessionRunHook`s.
        prediction_hooks: `SessionRunHook`s.
        reduction_method: what an update gets of the gradients of its micro-batches.
        **pipeline_op_kwargs: further arguments of `pipelining_ops.pipeline`.

    Raises:
        ValueError: if what the mode needs is missing, or `accumulate_outfeed` is given, which the estimator decides.
    """

    def __new__(
        cls,
        mode: str,
        computational_stages: Sequence[Any],
        gradient_accumulation_count: int | None = None,
        eval_metrics_fn: Callable[..., Any] | None = None,
        optimizer_function: Callable[..., Any] | None = None,
        device_mapping: Sequence[Any] | None = None,
        loss_accumulator_dtype: Any = None,
        training_hooks: Sequence[Any] | None = None,
        evaluation_hooks: Sequence[Any] | None = None,
        prediction_hooks: Sequence[Any] | None = None,
        reduction_method: Any = GradientAccumulationReductionMethod.SUM,
        **pipeline_op_kwargs: Any,
    ) -> IPUPipelineEstimatorSpec:
        _check_functions(mode, eval_metrics_fn, optimizer_function)
        if not gradient_accumulation_count:
            raise ValueError("`IPUPipelineEstimatorSpec` must contain `gradient_accumulation_count`")
        checked_count("gradient_accumulation_count", gradient_accumulation_count)
        if "accumulate_outfeed" in pipeline_op_kwargs:
            raise ValueError(
                "The `accumulate_outfeed` pipeline keyword argument cannot be passed to the `IPUPipelineEstimatorSpec`."
            )
        return super().__new__(
            cls,
            mode=mode,
            computational_stages=computational_stages,
            gradient_accumulation_count=gradient_accumulation_count,
            eval_metrics_fn=eval_metrics_fn,
            optimizer_function=optimizer_function,
            device_mapping=device_mapping,
            loss_accumulator_dtype=loss_accumulator_dtype,
            training_hooks=checked_hooks(training_hooks),
            evaluation_hooks=checked_hooks(evaluation_hooks),
            prediction_hooks=checked_hooks(prediction_hooks),
            reduction_method=reduction_method,
            pipeline_op_kwargs=pipeline_op_kwargs,
        )


def _check_functions(mode: str, eval_metrics_fn: Any, optimizer_function: Any) -> None:
    """Raises a ValueError if a function is missing that the mode needs."""
    if mode == ModeKeys.TRAIN and not optimizer_function:
        raise ValueError("`IPUPipelineEstimatorSpec` must contain `optimizer_function` when training")
    if mode == ModeKeys.EVAL and not eval_metrics_fn:
        raise ValueError("`IPUPipelineEstimatorSpec` must contain `eval_metrics_fn` when evaluating")
