"""Table of the arguments of `pipelining_ops.pipeline`: type, range, default and effect in emulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu_tf._arguments.counts import checked_count
from ipu_tf._config.argument_table import REQUIRED, Argument, ArgumentTable
from ipu_tf._config.treatment import modelled, no_effect
from ipu_tf._config.types import ANY, CALLABLE, FLAG, FLAGS, TEXT, ValueType, instances, integer, member, sequence_of
from ipu_tf._pipelining.pipeline_arguments import (
    checked_micro_batches,
    checked_recomputation,
    checked_schedule,
    checked_stage_mapping,
    checked_stage_options,
    checked_stages,
)
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_tf.ipu_infeed_queue import IPUInfeedQueue
from ipu_tf.ipu_outfeed_queue import IPUOutfeedQueue
from ipu_tf.pipeline.options import PipelineSchedule, PipelineStageOptions, RecomputationMode

_WORKS = modelled("It works.")
_MEMORY = no_effect("It says where the IPU keeps data; results do not depend on it.")
_PLANNER = no_effect("It steers PopLibs' planner, which is not used; results do not depend on it here.")
_OPTIONS = sequence_of("list of PipelineStageOptions", lambda value: isinstance(value, PipelineStageOptions))
_MAPPING = sequence_of("list of ints, or of lists of ints", lambda value: isinstance(value, (int, list, tuple)))


def is_dtype_or_function(value: Any) -> bool:
    """Returns whether an argument names a dtype, or is a function from a variable to one.

    Example:
        >>> is_dtype_or_function("float16"), is_dtype_or_function("float33"), is_dtype_or_function(3)
        (True, False, False)
    """
    if isinstance(value, (int, float)):  # TensorFlow takes the numbers of its enumeration for dtypes
        return False
    try:
        tf.as_dtype(value)
    except TypeError:
        return callable(value)
    return True


DTYPE = ValueType("dtype, or function from a variable to a dtype", None, is_dtype_or_function)


def _hardware(name: str, meaning: str, default: bool | None = None) -> Argument:
    return Argument(name, FLAG, default, meaning, _MEMORY)


def _options(name: str, what: str) -> Argument:
    meaning = f"PopLibs options of {what}, one of each stage."
    return Argument(name, _OPTIONS, None, meaning, _PLANNER, lambda value: checked_stage_options(name, value))


def _instance(kind: type, text: str) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(text.format(value=value))
        return value

    return checked


def _refused_if_set(value: Any) -> bool:
    if FLAG.accepts(value) and not value:
        return False
    raise NotImplementedError("Continuous weight updates are currently not supported.")


def _argument(name: str, kind: ValueType, default: Any, meaning: str, check: Any = None) -> Argument:
    return Argument(name, kind, default, meaning, _WORKS, check)


def _count(name: str, least: int, meaning: str) -> Argument:
    return _argument(name, integer(least), 1, meaning, lambda value: checked_count(name, value, least))


PIPELINE = ArgumentTable(
    "pipeline",
    (
        _argument(
            "computational_stages",
            sequence_of("list of callables, or of lists of them", callable),
            REQUIRED,
            "Two or more functions, the stages.",
            checked_stages,
        ),
        _argument(
            "gradient_accumulation_count",
            integer(),
            REQUIRED,
            "Micro-batches of an update, or of an execution in inference; an `int32[]` tensor too.",
            checked_micro_batches,
        ),
        _argument("gradient_accumulation_dtype", DTYPE, None, "Of the accumulators; None for each variable's."),
        _argument(
            "gradient_accumulation_for_captured_grads", FLAG, True, "Whether captured gradients are accumulated."
        ),
        _count("repeat_count", 0, "Updates, or executions in inference, of one run."),
        _count("batch_serialization_iterations", 1, "In how many parts each micro-batch comes."),
        _argument("inputs", ANY, None, "Tensors that stage 0 gets with every micro-batch."),
        _argument(
            "infeed_queue",
            instances("IPUInfeedQueue", IPUInfeedQueue),
            None,
            "Where micro-batches come from.",
            _instance(IPUInfeedQueue, "infeed_queue is not an instance of ipu_infeed_queue.IPUInfeedQueue"),
        ),
        _argument(
            "outfeed_queue",
            instances("IPUOutfeedQueue", IPUOutfeedQueue),
            None,
            "Where outputs go.",
            _instance(IPUOutfeedQueue, "outfeed_queue is not an instance of ipu_outfeed_queue.IPUOutfeedQueue"),
        ),
        _argument("optimizer_function", CALLABLE, None, "From outputs of the last stage to what is trained."),
        _argument("device_mapping", _MAPPING, None, "The IPU of each stage, -1 for all.", checked_stage_mapping),
        _argument("pipeline_schedule", member(PipelineSchedule), None, "None for Grouped.", checked_schedule),
        _argument("recomputation_mode", member(RecomputationMode), None, "None for Auto.", checked_recomputation),
        _options("forward_propagation_stages_poplar_options", "forward passes"),
        _options("backward_propagation_stages_poplar_options", "backward passes"),
        Argument(
            "weight_update_poplar_options",
            instances("PipelineStageOptions", PipelineStageOptions),
            None,
            "PopLibs options of the weight update.",
            _PLANNER,
            _instance(
                PipelineStageOptions,
                "weight_update_poplar_options to be of type PipelineStageOptions, but got {value} instead.",
            ),
        ),
        _hardware("offload_weight_update_variables", "Whether slots of optimizers are kept in remote memory."),
        _hardware("replicated_optimizer_state_sharding", "Whether replicas share the slots of optimizers.", False),
        _hardware("offload_activations", "Whether activations are kept in remote memory."),
        _hardware("offload_gradient_accumulation_buffers", "Whether accumulators are kept in remote memory."),
        _hardware("replicated_weight_sharding", "Whether replicas share the weights."),
        _hardware("offload_weights", "Whether weights are kept in remote memory."),
        Argument(
            "continuous_weight_updates",
            FLAG,
            False,
            "Whether weights are updated without waiting for all micro-batches.",
            modelled("The schedules have no such updates."),
            _refused_if_set,
            refused=True,
        ),
        _argument("outfeed_loss", FLAG, False, "Whether the outfeed gets the loss alone."),
        _argument("accumulate_outfeed", FLAG, False, "Whether the outfeed gets sums over an update's micro-batches."),
        _argument("accumulate_outfeed_dtype", DTYPE, None, "Of these sums."),
        _argument("outfeed_mask", FLAGS, None, "Whether to keep each output of the last stage from the outfeed."),
        _argument(
            "reduction_method",
            member(GradientAccumulationReductionMethod),
            "SUM",
            "How gradients of micro-batches become one; a name too.",
            GradientAccumulationReductionMethod.parse,
        ),
        _argument("name", TEXT, None, "For the ops."),
    ),
)
_IN_TRAINING = ("backward_propagation_stages_poplar_options", "weight_update_poplar_options", "reduction_method")


def check_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Checks the type and range of every argument of `pipeline`; those of training alone are not read in inference.

    Raises:
        TypeError, ValueError: for a value that cannot be.
        NotImplementedError: for continuous weight updates.
    """
    if given["optimizer_function"] is None:
        given = {name: value for name, value in given.items() if name not in _IN_TRAINING}
    return PIPELINE.check(given)
