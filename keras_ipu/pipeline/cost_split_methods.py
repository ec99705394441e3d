"""Methods of IPU models: `split_into_pipeline_stages`, `print_pipeline_stage_report` and `pipeline_timetable`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ipu_tf._arguments.counts import checked_count
from ipu_tf.pipeline import (
    StageCosts,
    StageReport,
    StageTimes,
    Timetable,
    TimetablePicture,
    schedule_table,
    split_text,
    stage_reports,
    stage_table,
)
from keras_ipu.addons.layers.recomputation import RecomputationCheckpoint
from keras_ipu.options.model_state import set_options
from keras_ipu.pipeline import assignment_checks
from keras_ipu.pipeline.assigned_stages import assign, assigned, default_assignments, model_name, nested_assignments
from keras_ipu.pipeline.call_costs import CallCost, call_costs
from keras_ipu.pipeline.plan_builder import build_plan, is_layer_call
from keras_ipu.pipeline.split_by_cost import given_mapping, one_stage_plan, split_model, timetable_of
from keras_ipu.pipeline.stage_plan import StagePlan


class SplitMethods:
    """Methods that every model made in the scope of an `IPUStrategy` has."""

    def split_into_pipeline_stages(
        self,
        num_stages: int,
        pipeline_stage_assignment: list[Any] | None = None,
        micro_batch_size: int = 32,
        memory_weight: float | None = None,
        print_fn: Callable[[str], Any] | None = print,
    ) -> None:
        """Assigns every layer of the model to a pipeline stage by cost, and explains the partition.

        Layers keep their order, and the stages that they were given. Time comes first: stages have as equal numbers of
        floating-point operations as can be, to 5 %, within the published memory of an IPU. Bytes decide between splits
        that take as long. They are variables, accumulators, and what layers give as often as the model's schedule
        keeps it. If no split fits into the IPUs, stages have as equal numbers of bytes as can be, and the text says so.

        Layers that share variables are on one IPU. Where a language model's head is its table of tokens, the first and
        the last stage are on IPU 0: the model's device mapping becomes `[0, 1, ..., num_stages - 2, 0]`.

        Args:
            num_stages: how many stages there are to be.
            pipeline_stage_assignment: stages that are given: a list as `get_pipeline_stage_assignment` gives it, in
                which a `pipeline_stage` of None is to be found, or, for a model without inner models, a list with a
                stage or None for each layer. By default all are to be found.
            micro_batch_size: samples in a micro-batch.
            memory_weight: how much bytes count in a mean of both that is balanced instead, from 0 (operations alone) to
                1 (bytes alone), without a limit of memory.
            print_fn: takes the tables of layers and stages, and the reasons; None for none of it.

        Raises:
            ValueError: if the assignment does not fit the model's layers; as `SplitError` if there is no such split.
            RuntimeError: for a model that is not built.

        Example:
            model.split_into_pipeline_stages(4)
            model.split_into_pipeline_stages(4, [0, None, None, None, 3, 3])
        """
        num_stages = checked_count("num_stages", num_stages)
        micro_batch_size = checked_count("micro_batch_size", micro_batch_size)
        one_stage_plan(self)
        assignments = _wanted(self, pipeline_stage_assignment)
        leaves = nested_assignments(assignments)
        known = [None] * len(leaves) if pipeline_stage_assignment is None else [each.pipeline_stage for each in leaves]
        found = split_model(self, known, num_stages, micro_batch_size, memory_weight)
        for each, stage in zip(leaves, found.stages, strict=True):
            each.pipeline_stage = stage
        assign(self, assignments)
        set_options(self, pipelining_device_mapping=found.split.device_mapping or given_mapping(self, num_stages))
        if print_fn is not None:
            print_fn(split_text(found.split))

    def print_pipeline_stage_report(
        self,
        micro_batch_size: int = 32,
        gradient_accumulation_steps_per_replica: int | None = None,
        print_fn: Callable[[str], Any] | None = None,
    ) -> None:
        """Prints estimated parameters, FLOPs and memory of each pipeline stage, a line for each.

        The columns are its IPU, layers, trained parameters, share of the operations, micro-batches stashed at most,
        forward passes repeated in an update, bytes of its variables, bytes of activations, and both together at their
        peak. Below comes what the schedule loses by waiting.

        Args:
            micro_batch_size: samples in a micro-batch.
            gradient_accumulation_steps_per_replica: micro-batches to an update; by default as the model's options say.
            print_fn: takes the text; `print` if None.

        Raises:
            ValueError: for a model that is not pipelined or not built, or a number of micro-batches that its schedule
                cannot run.
        """
        plan, timetable = _planned(self, gradient_accumulation_steps_per_replica)
        reports = _model_reports(plan, timetable, micro_batch_size)
        (print_fn or print)(_report_text(reports, timetable))

    def pipeline_timetable(
        self, micro_batch_size: int = 32, gradient_accumulation_steps_per_replica: int | None = None
    ) -> TimetablePicture:
        """The timetable by which the model trains, with the stages' estimated times.

        A notebook shows it as a picture, `print` as text, `save("timetable.svg")` writes the picture. The forward pass
        of a stage lasts in proportion to its operations, 1 for the mean stage; a backward pass twice as long.

        Args:
            micro_batch_size: samples in a micro-batch.
            gradient_accumulation_steps_per_replica: micro-batches to an update; by default as the model's options say.

        Raises:
            ValueError: for a model that is not pipelined or not built, or a number of micro-batches that its schedule
                cannot run.

        Example:
            model.set_pipeline_stage_assignment([0, 1, 1])
            model.pipeline_timetable().save("timetable.svg")
        """
        plan, timetable = _planned(self, gradient_accumulation_steps_per_replica)
        flops = [stage.flops for stage in _stage_costs(plan, micro_batch_size)]
        mean = sum(flops) / len(flops)
        times = (StageTimes(each / mean, 2 * each / mean, each / mean) for each in flops)
        return TimetablePicture(timetable, tuple(times) if mean else None)


def _planned(model: Any, micro_batches: int | None) -> tuple[StagePlan, Timetable]:
    """Returns the stages of a pipelined model and the timetable by which it trains."""
    if not assigned(model):
        raise ValueError(f"Model {model_name(model)} is not pipelined: none of its layers has a pipeline stage.")
    plan = build_plan(model, assigned(model))
    return plan, timetable_of(model, plan.stages, micro_batches)


def _wanted(model: Any, given: Any) -> list[Any]:
    """Returns assignment objects for a model, of which some stages may be given."""
    made = default_assignments(model)
    if given is None:
        return made
    assignment_checks.check_length(given, len(made))
    for place, each in enumerate(given):
        if each is not None and not isinstance(each, int):
            made[place] = each
        elif made[place].is_nested_model:
            raise ValueError(
                f"The stages of the inner model {made[place].nested_model.name} cannot be given by one number. Give "
                "the list of `get_pipeline_stage_assignment()`, with the stages that are known filled in."
            )
        else:
            made[place].pipeline_stage = each
    return made


def _model_reports(plan: StagePlan, timetable: Timetable, micro_batch_size: int) -> tuple[StageReport, ...]:
    """Estimates parameters, FLOPs and memory of each stage of a model that trains by a timetable."""
    return stage_reports(timetable, _stage_costs(plan, micro_batch_size))


def _stage_costs(plan: StagePlan, micro_batch_size: int) -> tuple[StageCosts, ...]:
    """Returns the cost of each stage of a model; its activations are its inputs and its layers' outputs."""
    costs, sizes = call_costs(plan, micro_batch_size)
    return tuple(
        _stage(list(of_stage), sum(sizes[number] for number in plan.carried[stage]), sizes)
        for stage, of_stage in itertools.groupby(costs, lambda cost: cost.call.stage)
    )


def _report_text(reports: tuple[StageReport, ...], timetable: Timetable) -> str:
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
