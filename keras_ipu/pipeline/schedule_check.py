"""Checks the micro-batch count of a pipelined model against its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ipu_tf._config.state import current_config
from ipu_tf.ops import pipelining_ops
from ipu_tf.pipeline import (
    MicroBatchCountError,
    PipelineShape,
    Schedule,
    check_micro_batches,
    check_schedule,
    overlap_length,
)
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.run_checks import is_pipelined, stage_numbers


def check_micro_batch_count(model: Any, count: int, training: bool) -> None:
    """Checks a micro-batch count against a pipelined model's schedule; other models run any number.

    Args:
        model: the model.
        count: micro-batches of a weight update, or of an execution where the model does not train.
        training: whether it trains.

    Raises:
        tf.errors.FailedPreconditionError: if the schedule cannot run so many.
        TypeError, ValueError, NotImplementedError: for options of the pipeline that cannot be.
    """
    if not is_pipelined(model):
        return
    options = options_of(model)
    stages = max(stage_numbers(model)) + 1
    _check_arguments(options.pipelining_kwargs)
    schedule = Schedule(int(options.pipelining_kwargs.get("pipeline_schedule") or Schedule.GROUPED))
    shape = PipelineShape(stages, tuple(options.pipelining_device_mapping or ()), training)
    check_schedule(schedule, shape)
    config = current_config()
    io_tiles = config is not None and config.io_tiles.place_ops_on_io_tiles and schedule is Schedule.GROUPED
    try:
        check_micro_batches(count, overlap_length(schedule, shape), io_tiles)
    except MicroBatchCountError as error:
        raise tf.errors.FailedPreconditionError(None, None, str(error)) from None


def _check_arguments(kwargs: Mapping[str, Any]) -> None:
    """Checks the arguments that a model passes to `pipelining_ops.pipeline`, as that does."""
    if kwargs.get("continuous_weight_updates"):
        raise NotImplementedError("Continuous weight updates are currently not supported.")
    if not isinstance(kwargs.get("pipeline_schedule"), (pipelining_ops.PipelineSchedule, type(None))):
        raise TypeError("The given pipeline_schedule is not a member of the PipelineSchedule enumeration.")
    if not isinstance(kwargs.get("recomputation_mode"), (pipelining_ops.RecomputationMode, type(None))):
        raise TypeError("The given recomputation_mode is not a member of the RecomputationMode enumeration.")
    if kwargs.get("replicated_optimizer_state_sharding") and kwargs.get("offload_weight_update_variables") is False:
        raise ValueError(
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
            "offload_weight_update_variables."
        )
