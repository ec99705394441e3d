"""Calls the `model_fn` of a pipelined model, and checks its spec against the run configuration."""

from __future__ import annotations

import tensorflow as tf

from ipu_tf._estimators.model import Model
from ipu_tf._estimators.pipeline_spec import IPUPipelineEstimatorSpec
from ipu_tf.tf_estimator.calls import argument_names, call_with


def pipeline_spec(model: Model) -> IPUPipelineEstimatorSpec:
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


def repeat_count(model: Model, spec: IPUPipelineEstimatorSpec) -> int:
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
