"""Private attributes of models that programs for Graphcore's Keras read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from keras_ipu.options.model_state import options_of, state_of
from keras_ipu.pipeline.stage_methods import assigned


def _mapping(model: Any) -> list[int] | None:
    mapping = options_of(model).pipelining_device_mapping
    return None if mapping is None else list(mapping)


READ_ONLY: dict[str, Callable[[Any], Any]] = {
    "_is_pipelined": lambda model: lambda: bool(assigned(model)),
    "_pipeline_stage_assignment": lambda model: list(assigned(model)),
    "_pipeline_stage_assignment_valid": lambda model: bool(assigned(model)) and state_of(model).assignment_valid,
    "_asynchronous_callbacks": lambda model: options_of(model).asynchronous_callbacks,
    "_replicated_metric_reduction_method": lambda model: options_of(model).replicated_metric_reduction,
    "_gradient_accumulation_steps_per_replica": lambda model: options_of(model).gradient_accumulation_steps,
    "_gradient_accumulation_optimizer_kwargs": lambda model: dict(options_of(model).gradient_accumulation_kwargs),
    "_gradient_accumulation_reduction_method": lambda model: GradientAccumulationReductionMethod.parse(
        options_of(model).gradient_accumulation_reduction
    ),
    "_pipelining_gradient_accumulation_steps_per_replica": lambda model: (
        options_of(model).pipelining_gradient_accumulation_steps
    ),
    "_pipelining_device_mapping": _mapping,
    "_pipelining_accumulate_outfeed": lambda model: options_of(model).pipelining_accumulate_outfeed,
    "_pipelining_kwargs": lambda model: dict(options_of(model).pipelining_kwargs),
    "_infeed_kwargs": lambda model: dict(options_of(model).infeed_kwargs),
    "_outfeed_kwargs": lambda model: dict(options_of(model).outfeed_kwargs),
}
"""By name, what gives the value for a model."""
