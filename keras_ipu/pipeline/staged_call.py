"""Calls a pipelined model stage by stage, with stage boundaries, while a step is traced.

The numbers are those of the model's own call; the step is cut at the boundaries if its stages run on several devices.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ipu_tf._pipelining.stage_boundaries import StageBoundaries
from ipu_tf.pipeline import recomputation_of, require_one_device
from keras_ipu.options.model_state import options_of
from keras_ipu.pipeline.assigned_stages import assigned
from keras_ipu.pipeline.graph import ModelKind, kind_of
from keras_ipu.pipeline.run_checks import stage_plan
from keras_ipu.pipeline.stage_plan import StagePlan, run_stage
from keras_ipu.stock import graphs as keras_graphs
from keras_ipu.stock import models as keras_models


@contextlib.contextmanager
def staged_call(model: Any, accumulation_count: int, training: bool) -> Iterator[None]:
    """Context in which calls of a pipelined model mark the boundaries of its stages; other models are unchanged.

    Args:
        model: the model.
        accumulation_count: steps to a weight update.
        training: whether the step trains.

    Raises:
        PipelineDevicesError: if pipelines have to run on several devices, and this one cannot.
    """
    if not assigned(model):
        yield
        return
    if kind_of(model) is ModelKind.SUBCLASSED:
        # Its `call` may do what a plan of its layers' calls does not know of.
        require_one_device(f"{model.name} is a subclassed model, whose call is taken as it is")
        yield
        return
    plan = stage_plan(model)
    boundaries = _stage_boundaries(model, plan, accumulation_count, training)

    def call(inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        values = plan.start(inputs, mask)
        with boundaries.tracing():
            for stage in range(plan.stages):
                values = [_mark_outputs(boundaries, stage, value) for value in run_stage(plan, stage, values, training)]
        return plan.finish(values)

    with keras_models.calling(model, call):
        yield


def _stage_boundaries(model: Any, plan: StagePlan, accumulation_count: int, training: bool) -> StageBoundaries:
    options = options_of(model)
    mapping = options.pipelining_device_mapping or tuple(range(plan.stages))
    schedule = int(options.pipelining_kwargs.get("pipeline_schedule") or 0)
    recomputation = recomputation_of(options.pipelining_kwargs.get("recomputation_mode"), schedule, training)
    count = accumulation_count if training else 0
    return StageBoundaries(plan.stages, tuple(mapping), schedule, training, count, recomputation)


def _mark_outputs(boundaries: StageBoundaries, stage: int, value: Any) -> Any:
    marked = boundaries.mark_outputs(stage, value)
    mask = keras_graphs.get_mask(value)
    if mask is not None:
        keras_graphs.set_mask(marked, boundaries.mark_outputs(stage, mask))
    return marked
