"""Assigns layers to pipeline stages by cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
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
from keras_ipu.pipeline.call_costs import CallCost, call_costs
from keras_ipu.pipeline.graph import graph_of, post_order
from keras_ipu.pipeline.plan_builder import build_plan, is_layer_call
from keras_ipu.pipeline.stage_plan import StagePlan
from keras_ipu.stock.ownership import is_ipu_model


@dataclasses.dataclass(frozen=True)
class _SingleStageAssignment:
    """Returns assignments with everything on stage 0, for a layer or an inner model."""

    is_nested_model: bool
    pipeline_stage_assignments: tuple[_SingleStageAssignment, ...] = ()
    pipeline_stage: int = 0


def split_model(
    model: Any, known: Sequence[int | None], stages: int, micro_batch_size: int, memory_weight: float | None
) -> tuple[Split, list[int]]:
    """Assigns stages to a model's layers by cost.

    Layers stay in the order in which they run. The calls of a layer that is called several times, and what runs between
    them, go to one stage, as its variables are on one IPU.

    Args:
        model: the model, built.
        known: for each call of a layer, those in inner models too, its stage; None for one that is to be found.
        stages: how many there are to be.
        micro_batch_size: samples in a micro-batch.
        memory_weight: how much bytes count against operations, 0 to 1. With None time comes first, within the published
            memory of an IPU; if no split fits that, bytes alone count.

    Returns:
        The split, in which a layer may be several calls that belong together, and the stage of each call.

    Raises:
        SplitError: if there is no such split.
    """
    costs, _ = call_costs(one_stage_plan(model), micro_batch_size)
    costs = [cost for cost in costs if is_layer_call(cost.call)]
    units = _units([cost.call.layer for cost in costs])
    if len(units) < stages <= len(costs):
        raise SplitError(_too_few_units(units, [cost.call.layer.name for cost in costs], stages))
    layers = [_joined([costs[i] for i in unit], [known[i] for i in unit]) for unit in units]
    split = _split(layers, stages, memory_weight, peak_stash(timetable_of(model, stages)))
    return split, [stage for unit, stage in zip(units, split.assignment, strict=True) for _ in unit]


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


def timetable_of(model: Any, stages: int, count: int | None = None) -> Timetable:
    """Returns the timetable of training a model with this number of stages, by its options.

    Args:
        model: the model.
        stages: how many stages.
        count: micro-batches to an update; by default as many as the model accumulates, or the least that fills the
            pipeline.

    Raises:
        MicroBatchCountError: for a number of micro-batches that the schedule cannot run.
    """
    options = options_of(model)
    schedule = Schedule(int(options.pipelining_kwargs.get("pipeline_schedule") or 0))
    mapping = tuple(options.pipelining_device_mapping or ())
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


def _units(layers: Sequence[Any]) -> list[range]:
    """Groups consecutive calls that have to be in one stage: first to last call of a layer with variables."""
    last = {id(layer): place for place, layer in enumerate(layers) if getattr(layer, "weights", ())}
    units: list[range] = []
    for place, layer in enumerate(layers):
        end = last.get(id(layer), place) + 1
        if units and place < units[-1].stop:
            units[-1] = range(units[-1].start, max(units[-1].stop, end))
        else:
            units.append(range(place, end))
    return units


def _too_few_units(units: Sequence[range], names: Sequence[str], stages: int) -> str:
    """Returns why there are fewer units than stages: the longest is a layer's first call to its last one."""
    longest = max(units, key=len)
    return (
        f"There are {len(units)} parts to make {stages} stages of: '{names[longest[0]]}' is called first and "
        f"'{names[longest[-1]]}' last of {len(longest)} layers that have to be in one stage, because calls among them "
        "share variables. Stages may share variables where they are on one IPU: assign such stages with "
        "`set_pipeline_stage_assignment`, and their IPUs with `set_pipelining_options(device_mapping=...)`."
    )


def _joined(costs: Sequence[CallCost], stages: Sequence[int | None]) -> LayerCosts:
    """Joins calls that belong together into one unit of the layer partition."""
    name = " + ".join(dict.fromkeys(str(cost.call.layer.name) for cost in costs))
    pinned = {stage for stage in stages if stage is not None}
    if len(pinned) > 1:
        raise SplitError(f"Layers '{name}' have to be in one stage, but are put on stages {sorted(pinned)}.")
    return LayerCosts(
        name=name,
        flops=sum(cost.flops for cost in costs),
        parameter_bytes=sum(cost.parameter_bytes + cost.training_bytes for cost in costs),
        activation_bytes=sum(cost.output_bytes for cost in costs),
        stage=next(iter(pinned), None),
    )
