"""Step split of an IPU model: accumulation count, replicas and IPUs of a pipeline."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._config.state import current_config, graphcore_rules
from ipu_tf._state.once import first_time
from ipu_tf._training.replication import instance_count, target
from ipu_tf.pipeline import (
    MicroBatchCountError,
    PipelineShape,
    Schedule,
    check_micro_batches,
    check_schedule,
    overlap_length,
)
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.run_checks import is_pipelined, shard_count, stage_numbers
from keras_ipu.stock import models as keras_models

_log = logging.getLogger("ipu_tf")


@dataclasses.dataclass(frozen=True)
class StepSplit:
    """Step split: accumulation count, replicas and shards; models keep one traced step for each.

    Attributes:
        accumulation_count: steps whose gradients make one weight update.
        reduction: how these gradients are combined: "SUM", "MEAN" or "RUNNING_MEAN".
        dtype: of the accumulators: None for that of each variable, a dtype, or a function from a variable to a dtype.
        replicas: copies of the model that run side by side, on batches of their own.
        shards: IPUs that one replica takes.
        joint_metrics: whether the metrics of every replica count the batches of all, as stock Keras's do.
        instances: how many instances train together, each with so many replicas.
    """

    accumulation_count: int = 1
    reduction: str = "SUM"
    dtype: Any = None
    replicas: int = 1
    shards: int = 1
    joint_metrics: bool = True
    instances: int = 1

    @property
    def all_replicas(self) -> int:
        """Returns how many replicas all instances have."""
        return self.replicas * self.instances

    @property
    def is_trivial(self) -> bool:
        """Returns whether steps are not split at all."""
        return self.accumulation_count == 1 and self.all_replicas == 1

    def accumulator_dtype(self, variables: Any, position: int) -> tf.DType | None:
        """The dtype of the accumulator of the gradient at a position; None for that of the gradient."""
        function = callable(self.dtype) and not isinstance(self.dtype, type)  # NumPy's dtypes are classes
        if function and variables is None:
            return None
        dtype = self.dtype(variables[position]) if function else self.dtype
        return None if dtype is None else tf.as_dtype(dtype)


def step_split(model: Any, accumulation_count: int = 1) -> StepSplit:
    """Returns the step split of a model on its device as it is configured now.

    Args:
        model: the model.
        accumulation_count: steps to a weight update; 1 for what does not train.

    Raises:
        ValueError: if the device has not as many IPUs as a replica takes, or not a multiple of them.
    """
    options = options_of(model)
    if is_pipelined(model):
        dtype = options.pipelining_kwargs.get("gradient_accumulation_dtype")
    else:
        dtype = options.gradient_accumulation_kwargs.get("dtype")
    return StepSplit(
        accumulation_count=accumulation_count,
        reduction=options.gradient_accumulation_reduction,
        dtype=dtype if accumulation_count > 1 else None,
        replicas=replica_count(model),
        instances=instance_count(),
        shards=shard_count(model),
        joint_metrics=options.replicated_metric_reduction is None and not graphcore_rules(),
    )


def replica_count(model: Any) -> int:
    """Returns the number of a model's replicas on its device as it is configured now.

    Raises:
        ValueError: if the device has not as many IPUs as a replica takes, or not a multiple of them.
    """
    shards = shard_count(model)
    try:
        return target(keras_models.strategy_of(model).device_ordinal, shards).replicas
    except tf.errors.InternalError as error:
        needed = 1 << (shards - 1).bit_length()
        raise ValueError(
            f"Current device has {keras_models.strategy_of(model).num_ipus} IPUs attached, however the current model "
            f"requires a multiple of {needed} IPUs."
        ) from error


def log_effective_batch_size(
    model: str, shapes: Iterable[Sequence[int]], accumulation_count: int, replicas: int
) -> None:
    """Logs the effective batch size once for each model and step split; nothing if steps are not split.

    Args:
        model: the model's name.
        shapes: of the arrays of a batch.
        accumulation_count: batches of a replica to a weight update.
        replicas: how many there are.
    """
    if accumulation_count * replicas > 1:
        batch = next((shape[0] for shape in shapes if shape), 1)
        if first_time("effective batch size", model, batch, accumulation_count, replicas):
            _log_message(model, batch, accumulation_count, replicas)


def _log_message(model: str, batch: int, count: int, replicas: int) -> None:
    split = [f"{count} batches an update"] * (count > 1) + [f"{replicas} replicas"] * (replicas > 1)
    _log.info(
        "ipu_tf: %s: Training is split into %s, your effective batch size is %d.",
        model,
        " on each of ".join(split),
        batch * count * replicas,
    )


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
    _check_sharding(options.pipelining_kwargs)
    schedule = Schedule(int(options.pipelining_kwargs.get("pipeline_schedule") or Schedule.GROUPED))
    shape = PipelineShape(stages, tuple(options.pipelining_device_mapping or ()), training)
    check_schedule(schedule, shape)
    config = current_config()
    io_tiles = config is not None and config.io_tiles.place_ops_on_io_tiles and schedule is Schedule.GROUPED
    try:
        check_micro_batches(count, overlap_length(schedule, shape), io_tiles)
    except MicroBatchCountError as error:
        raise tf.errors.FailedPreconditionError(None, None, str(error)) from None


def _check_sharding(kwargs: Mapping[str, Any]) -> None:
    """Checks arguments of `pipelining_ops.pipeline` that do not go together, as that does."""
    if kwargs.get("replicated_optimizer_state_sharding") and kwargs.get("offload_weight_update_variables") is False:
        raise ValueError(
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
            "offload_weight_update_variables."
        )
