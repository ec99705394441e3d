"""Assigns layers to pipeline stages by cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ipu_tf.pipeline import (
    LayerCosts,
    PipelineShape,
    Schedule,
    Split,
    SplitError,
    Timetable,
    overlap_length,
    peak_stash,
    recomputation_of,
    split_layers,
    timetable,
)
from ipu_tf.reports.capacity import IPU_BYTES
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.call_costs import call_costs
from keras_ipu.pipeline.graph import graph_of, post_order
from keras_ipu.pipeline.layer_calls import LayerCalls, both_ends
from keras_ipu.pipeline.plan_builder import build_plan, is_layer_call
from keras_ipu.pipeline.shared_variables import early_order, sharing_places, variables_of
from keras_ipu.pipeline.stage_plan import StagePlan
from keras_ipu.stock.ownership import is_ipu_model


@dataclasses.dataclass(frozen=True)
class _SingleStageAssignment:
    """Returns assignments with everything on stage 0, for a layer or an inner model."""

    is_nested_model: bool
    pipeline_stage_assignments: tuple[_SingleStageAssignment, ...] = ()
    pipeline_stage: int = 0


@dataclasses.dataclass(frozen=True)
class StageSplit:
    """A partition of a model's layer calls into stages.

    Attributes:
        split: the partition. A layer of it may be several calls that belong together.
        stages: the stage of each call, in the order in which the model has them.
    """

    split: Split
    stages: list[int]


def split_model(
    model: Any, known: Sequence[int | None], stages: int, micro_batch_size: int, memory_weight: float | None
) -> StageSplit:
    """Assigns stages to a model's layers by cost.

    Layers stay in the order in which they run; a call that shares variables with an earlier one moves up to it where
    its inputs are there by then. Other calls that share variables go to one stage with what runs between them, or,
    where that leaves too few parts or makes a larger stage, to the first and the last stage, which are then on one IPU.

    Args:
        model: the model, built.
        known: for each call of a layer, those in inner models too, its stage; None for one that is to be found.
        stages: how many there are to be.
        micro_batch_size: samples in a micro-batch.
        memory_weight: how much bytes count against operations, 0 to 1. With None time comes first, within the published
            memory of an IPU; if no split fits that, bytes alone count.

    Raises:
        SplitError: if there is no such split.
    """
    costs, _ = call_costs(one_stage_plan(model), micro_batch_size)
    costs = [cost for cost in costs if is_layer_call(cost.call)]
    order = early_order([cost.call for cost in costs])
    calls = LayerCalls([costs[place] for place in order], [known[place] for place in order], stages, memory_weight)
    found = _best(calls, model)
    at = dict(zip(order, found.stages, strict=True))
    return dataclasses.replace(found, stages=[at[place] for place in range(len(costs))])


def given_mapping(model: Any, stages: int) -> tuple[int, ...] | None:
    """Returns the device mapping that a model's options have, unless it is that of another number of stages."""
    given = options_of(model).pipelining_device_mapping
    return given if given is not None and len(given) == stages else None


def _best(calls: LayerCalls, model: Any) -> StageSplit:
    """Returns the split whose dearest IPU has the fewest operations."""
    units = calls.units(0, len(calls.costs))
    mapping = (*range(calls.stages - 1), 0)
    given = given_mapping(model, calls.stages)
    splits = []
    if given in (None, mapping) and calls.stages > 2:
        splits = list(_rotated(calls, mapping, peak_stash(timetable_of(model, calls.stages, mapping=mapping))))
    if len(units) >= calls.stages or len(calls.costs) < calls.stages:
        layers = [calls.joined(unit) for unit in units]
        split = _split(layers, calls.stages, calls.memory_weight, peak_stash(timetable_of(model, calls.stages)))
        stages = [stage for unit, stage in zip(units, split.assignment, strict=True) for _ in unit]
        splits.insert(0, StageSplit(split, stages))
    if not splits:
        raise SplitError(_too_few_units(units, [cost.call.layer.name for cost in calls.costs], calls.stages))
    return min(splits, key=lambda each: max(share.flops_share for share in each.split.shares))


def _rotated(calls: LayerCalls, mapping: tuple[int, ...], stash: Sequence[int]) -> Iterator[StageSplit]:
    """Yields splits whose last stage is on the IPU of the first, as both share variables.

    What the two have, the end of the model and its beginning, is one unit of the partition onto one IPU fewer.
    """
    variables = [variables_of(cost.call.layer) for cost in calls.costs]
    for start, first_end in sharing_places(variables):
        pins = {*calls.known[start:]} - {None, calls.stages - 1} | {*calls.known[:first_end]} - {None, 0}
        units = calls.units(first_end, start)
        if pins or len(units) + 1 < len(mapping) - 1:
            continue
        try:
            begin, end = calls.joined(range(first_end)), calls.joined(range(start, len(calls.costs)))
            layers = [both_ends(begin, end, stash), *(calls.joined(unit) for unit in units)]
            split = _split(layers, len(mapping) - 1, calls.memory_weight, stash[:-1])
        except SplitError:
            continue
        middle = [stage for unit, stage in zip(units, split.assignment[1:], strict=True) for _ in unit]
        last = [len(mapping) - 1] * (len(calls.costs) - start)
        yield StageSplit(dataclasses.replace(split, device_mapping=mapping), [0] * first_end + middle + last)


def _split(layers: list[LayerCosts], stages: int, memory_weight: float | None, stash: Sequence[int]) -> Split:
    if memory_weight is not None:
        return split_layers(layers, stages, memory_weight, stash)
    try:
        return split_layers(layers, stages, None, stash, IPU_BYTES)
    except SplitError:
        return dataclasses.replace(split_layers(layers, stages, 1.0, stash), memory_limit=IPU_BYTES)


def one_stage_plan(model: Any) -> StagePlan:
    """Builds the `StagePlan` of a model with all layer calls on one stage.

    Raises:
        RuntimeError: for a model that is not built.
    """
    if graph_of(model) is None:
        raise RuntimeError(
            f"The layers of model `{model.name}` cannot be split into pipeline stages before it is built: what they "
            "cost depends on the shapes of their inputs. Please call `model.build()` first."
        )
    return build_plan(model, _on_one_stage(model), contiguous=False)


def timetable_of(
    model: Any, stages: int, count: int | None = None, mapping: tuple[int, ...] | None = None
) -> Timetable:
    """Returns the timetable of training a model with this number of stages, by its options.

    Args:
        model: the model.
        stages: how many stages.
        count: micro-batches to an update; by default as many as the model accumulates, or the least that fills the
            pipeline.
        mapping: the IPU of each stage; by default as the model's options say.

    Raises:
        MicroBatchCountError: for a number of micro-batches that the schedule cannot run.
    """
    options = options_of(model)
    schedule = Schedule(int(options.pipelining_kwargs.get("pipeline_schedule") or 0))
    mapping = tuple(options.pipelining_device_mapping or ()) if mapping is None else mapping
    recomputation = recomputation_of(options.pipelining_kwargs.get("recomputation_mode"), int(schedule), training=True)
    shape = PipelineShape(stages, mapping if len(mapping) == stages else (), recomputation=recomputation)
    steps = count or options.pipelining_gradient_accumulation_steps or 2 * overlap_length(schedule, shape)
    return timetable(schedule, shape, steps)


def _on_one_stage(model: Any) -> tuple[_SingleStageAssignment, ...]:
    operations = [node.operation for node in post_order(model)]
    return tuple(
        _SingleStageAssignment(True, _on_one_stage(operation))
        if is_ipu_model(operation)
        else _SingleStageAssignment(False)
        for operation in operations
    )


def _too_few_units(units: Sequence[range], names: Sequence[str], stages: int) -> str:
    """Returns why there are fewer units than stages: the longest is a layer's first call to its last one."""
    longest = max(units, key=len)
    return (
        f"There are {len(units)} parts to make {stages} stages of: '{names[longest[0]]}' is called first and "
        f"'{names[longest[-1]]}' last of {len(longest)} layers that have to be in one stage, because calls among them "
        "share variables. Stages may share variables where they are on one IPU: assign such stages with "
        "`set_pipeline_stage_assignment`, and their IPUs with `set_pipelining_options(device_mapping=...)`."
    )
