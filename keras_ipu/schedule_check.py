"""Whether the schedule of a pipelined model can run as many micro-batches as it is asked to."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ipu_tf.config_state import current_config
from ipu_tf.pipeline import MicroBatchCountError, PipelineShape, Schedule, check_micro_batches, overlap_length
from keras_ipu.model_state import options_of
from keras_ipu.run_rules import is_pipelined, stage_numbers


def check_micro_batch_count(model: Any, count: int, training: bool) -> None:
    """Checks a number of micro-batches against a pipelined model's schedule; any other model runs any number.

    Args:
        model: the model.
        count: micro-batches of a weight update, or of an execution where the model does not train.
        training: whether it trains.

    Raises:
        tf.errors.FailedPreconditionError: if the schedule cannot run so many.
    """
    if not is_pipelined(model):
        return
    options = options_of(model)
    stages = max(stage_numbers(model)) + 1
    schedule = Schedule(int(options.pipelining_kwargs.get("pipeline_schedule") or Schedule.GROUPED))
    shape = PipelineShape(stages, tuple(options.pipelining_device_mapping or ()), training)
    config = current_config()
    io_tiles = config is not None and config.io_tiles.place_ops_on_io_tiles and schedule is Schedule.GROUPED
    try:
        check_micro_batches(count, overlap_length(schedule, shape), io_tiles)
    except MicroBatchCountError as error:
        raise tf.errors.FailedPreconditionError(None, None, str(error)) from None
