"""`pipeline`: models split into stages, trained by micro-batches with one weight update for all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ipu_tf._pipelining.optimizer_output import OptimizerFunctionOutput
from ipu_tf._pipelining.pipeline_arguments import PipelineArguments, Stage, record_stage_options
from ipu_tf._pipelining.pipeline_loop import pipeline_loop
from ipu_tf._pipelining.pipeline_table import PIPELINE, check_arguments
from ipu_tf._pipelining.stage_boundaries import checkpoint
from ipu_tf._tracing.construction_errors import defer
from ipu_tf._tracing.unconverted import do_not_convert
from ipu_tf.emulation import record_ignored
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_tf.pipeline.options import ALL_DEVICES, PipelineSchedule, PipelineStageOptions, RecomputationMode

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "pipeline",
    "recomputation_checkpoint",
]

_ALL_DEVICES = ALL_DEVICES  # Graphcore's name, which programs use
_PLACEMENTS = (
    "offload_weight_update_variables",
    "replicated_optimizer_state_sharding",
    "offload_activations",
    "offload_gradient_accumulation_buffers",
    "replicated_weight_sharding",
    "offload_weights",
)
"""Arguments that say where the IPU keeps data."""
_log = logging.getLogger("ipu_tf")


@do_not_convert
def pipeline(
    computational_stages: Sequence[Stage],
    gradient_accumulation_count: Any = None,
    gradient_accumulation_dtype: Any = None,
    gradient_accumulation_for_captured_grads: bool = True,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Any = None,
    infeed_queue: IPUInfeedQueue | None = None,
    outfeed_queue: IPUOutfeedQueue | None = None,
    optimizer_function: Callable[..., OptimizerFunctionOutput] | None = None,
    device_mapping: Sequence[Any] | None = None,
    pipeline_schedule: PipelineSchedule | None = None,
    recomputation_mode: RecomputationMode | None = None,
    forward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    backward_propagation_stages_poplar_options: Sequence[PipelineStageOptions] | None = None,
    weight_update_poplar_options: PipelineStageOptions | None = None,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool = False,
    offload_activations: bool | None = None,
    offload_gradient_accumulation_buffers: bool | None = None,
    replicated_weight_sharding: bool | None = None,
    offload_weights: bool | None = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: Any = None,
    outfeed_mask: Sequence[bool] | None = None,
    reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    name: str | None = None,
) -> tf.Operation:
    """Runs a model as a pipeline, inside of a program.

    All micro-batches of an update see the same weights, so the numbers are those of plain gradient accumulation,
    whatever the schedule and the mapping.

    Args:
        computational_stages: two or more functions. Stage 0 takes `inputs`, then the infeed's element (a dictionary by
            name); each other stage takes the outputs of the one before. A list of functions, with a list in
            `device_mapping`, is a stage of parallel parts: all take the same arguments, their outputs are joined.
        gradient_accumulation_count: micro-batches to an update; in inference, of an execution. A number, or a tensor
            `int32[]`.
        gradient_accumulation_dtype: of the accumulators: None for each variable's, a dtype, or a function from a
            variable to a dtype or None.
        gradient_accumulation_for_captured_grads: accumulate captured gradients too; otherwise the last micro-batch's
            reach the optimizer.
        repeat_count: how many updates (or executions in inference) one run of the program makes.
        batch_serialization_iterations: in how many parts each micro-batch comes from the infeed; needs the sequential
            schedule, one device and SUM.
        inputs: tensors that stage 0 gets with every micro-batch.
        infeed_queue: where micro-batches come from.
        outfeed_queue: where the last stage's outputs go.
        optimizer_function: takes the last stage's outputs and gives an `OptimizerFunctionOutput`; with it, the pipeline
            trains.
        device_mapping: for each stage the IPU it is on, -1 for all; by default stage i on IPU i.
        pipeline_schedule: by default Grouped, and Sequential with batch serialization.
        recomputation_mode: by default Auto: recompute activations, as the schedule supports it, if the configuration's
            `allow_recompute` is set. A mode that is named recomputes in any case. It never changes numbers: on several
            devices it changes what stages keep, on one what reports say of them.
        forward_propagation_stages_poplar_options: recorded, without effect.
        backward_propagation_stages_poplar_options: recorded, without effect.
        weight_update_poplar_options: recorded, without effect.
        offload_weight_update_variables: recorded, without effect.
        replicated_optimizer_state_sharding: recorded, without effect.
        offload_activations: recorded, without effect.
        offload_gradient_accumulation_buffers: recorded, without effect.
        replicated_weight_sharding: recorded, without effect.
        offload_weights: recorded, without effect.
        continuous_weight_updates: not supported.
        outfeed_loss: give the outfeed the loss alone.
        accumulate_outfeed: give the outfeed the sum over an update's micro-batches, once an update.
        accumulate_outfeed_dtype: of these sums, as `gradient_accumulation_dtype`.
        outfeed_mask: for each output of the last stage, whether to keep it from the outfeed.
        reduction_method: a `GradientAccumulationReductionMethod` or its name.
        name: for the ops.

    Returns:
        The operation that runs the pipeline.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for arguments that do not go together, outputs without an outfeed, or a stage that uses a tensor of
            the graph around it.
        NotImplementedError: for what schedules do not support.
        tf.errors.FailedPreconditionError: when the program runs, for a number of micro-batches that the schedule cannot
            run.
    """
    given = check_arguments(dict(locals()))
    count, reduction_method = given["gradient_accumulation_count"], given.get("reduction_method", reduction_method)
    repeat_count, batch_serialization_iterations = given["repeat_count"], given["batch_serialization_iterations"]
    if replicated_optimizer_state_sharding and offload_weight_update_variables is False:
        raise ValueError(
            "To use replicated_optimizer_state_sharding, optimizer state must be offloaded by using "
            "offload_weight_update_variables."
        )
    serialized = batch_serialization_iterations > 1
    sequential = PipelineSchedule.Sequential if serialized else PipelineSchedule.Grouped
    request = PipelineArguments(
        stages=computational_stages,
        count=count,
        repeat_count=repeat_count,
        serialization=batch_serialization_iterations,
        inputs=_tensors(inputs),
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=optimizer_function,
        device_mapping=_mapping(computational_stages, serialized) if device_mapping is None else device_mapping,
        schedule=sequential if pipeline_schedule is None else pipeline_schedule,
        recomputation=RecomputationMode.Auto if recomputation_mode is None else recomputation_mode,
        dtype=gradient_accumulation_dtype,
        accumulate_captured=gradient_accumulation_for_captured_grads,
        outfeed_loss=outfeed_loss,
        outfeed_mask=outfeed_mask,
        accumulate_outfeed=accumulate_outfeed,
        accumulate_outfeed_dtype=accumulate_outfeed_dtype,
        reduction=reduction_method,
        name=name or "pipeline",
    )
    _record_stage_options(
        request,
        forward_propagation_stages_poplar_options=forward_propagation_stages_poplar_options,
        backward_propagation_stages_poplar_options=backward_propagation_stages_poplar_options,
    )
    if request.training:
        _record_update_options(weight_update_poplar_options)
    PIPELINE.record({name: given[name] for name in _PLACEMENTS})
    return _run(request)


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """Marks tensors to be kept where a stage recomputes its activations. Their values are what they were.

    A pipeline on several devices that recomputes keeps of every micro-batch what each stage takes and what it marks,
    and nothing else; see `RecomputationMode`. With `RecomputeAndBackpropagateInterleaved` the activations between two
    marks alone are there at a time.

    Args:
        tensors: a structure of tensors.
        name: for the ops.
    """
    return tf.nest.map_structure(lambda tensor: checkpoint(tf.identity(tensor, name=name)), tensors)


def _run(request: PipelineArguments) -> tf.Operation:
    """Builds the loop of the pipeline. A number of micro-batches that it cannot run raises when the program runs."""
    operation = pipeline_loop(request)
    try:
        request.check_count()
    except tf.errors.FailedPreconditionError as error:
        defer(error)
    return operation


def _mapping(stages: Any, serialized: bool) -> list[int]:
    """Each stage on an IPU of its own, or all on one if batches are serialized."""
    count = len(stages) if isinstance(stages, (list, tuple)) else 0
    return [0] * count if serialized else list(range(count))


def _tensors(inputs: Any) -> list[tf.Tensor]:
    if inputs is None:
        return []
    inputs = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    for value in inputs:
        if isinstance(value, tf.Variable):
            _log.warning("Passing tensor %s by value.", value)
    return [tf.convert_to_tensor(value) for value in inputs]


def _record_stage_options(request: PipelineArguments, **options: Any) -> None:
    """Those of backward stages are looked at in training alone."""
    for argument, value in options.items():
        if request.training or argument.startswith("forward"):
            record_stage_options(value, len(request.stages), argument)


def _record_update_options(options: Any) -> None:
    if options is not None and not options.empty:
        record_ignored("pipeline.weight_update_poplar_options", options)


def _to_flat_list(values: Any) -> list[Any]:
    """Nested lists, tuples and ranges as one list; Graphcore's own tests call this by its name."""
    if isinstance(values, (list, tuple, range)):
        return [leaf for value in values for leaf in _to_flat_list(value)]
    return [values]
