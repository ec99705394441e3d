"""Table of parameters, FLOPs and memory of each pipeline stage."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from ipu_tf.pipeline import StageCosts, StageReport, Timetable, schedule_table, stage_reports, stage_table
from keras_ipu.addons.layers.recomputation import RecomputationCheckpoint
from keras_ipu.pipeline.call_costs import CallCost, call_costs
from keras_ipu.pipeline.plan_builder import is_layer_call
from keras_ipu.pipeline.stage_plan import StagePlan


def model_reports(plan: StagePlan, timetable: Timetable, micro_batch_size: int) -> tuple[StageReport, ...]:
    """Estimates parameters, FLOPs and memory of each stage.

    Args:
        plan: the model, taken apart.
        timetable: by which it trains.
        micro_batch_size: samples in a micro-batch.
    """
    return stage_reports(timetable, stage_costs(plan, micro_batch_size))


def stage_costs(plan: StagePlan, micro_batch_size: int) -> tuple[StageCosts, ...]:
    """Returns the cost of each stage of a model; its activations are its inputs and its layers' outputs."""
    costs, sizes = call_costs(plan, micro_batch_size)
    return tuple(
        _stage(list(of_stage), sum(sizes[number] for number in plan.carried[stage]), sizes)
        for stage, of_stage in itertools.groupby(costs, lambda cost: cost.call.stage)
    )


def report_text(reports: tuple[StageReport, ...], timetable: Timetable) -> str:
    """Returns the text of a model's stage reports, with the bubble of its schedule."""
    return f"{stage_table(reports)}\n\n{schedule_table([timetable])}"


def _stage(costs: list[CallCost], input_bytes: int, sizes: Mapping[int, int]) -> StageCosts:
    kept = sum(cost.output_bytes for cost in costs if isinstance(cost.call.layer, RecomputationCheckpoint))
    return StageCosts(
        flops=sum(cost.flops for cost in costs),
        parameters=sum(cost.parameters for cost in costs),
        parameter_bytes=sum(cost.parameter_bytes for cost in costs),
        input_bytes=input_bytes,
        activation_bytes=sum(cost.output_bytes for cost in costs),
        checkpoint_bytes=kept,
        training_bytes=sum(cost.training_bytes for cost in costs),
        layers=tuple(_names(costs)),
    )


def _names(costs: list[CallCost]) -> Iterator[str]:
    for cost in costs:
        if is_layer_call(cost.call):
            yield str(cost.call.layer.name)
