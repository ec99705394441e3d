"""Checks of pipelines that `test_pipelining_ops.py` does not reach: each raises its error; what is allowed runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops.pipelining_ops import OptimizerFunctionOutput, PipelineSchedule, PipelineStageOptions, pipeline
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

OTHER_NAMES = (
    "This number might be called `gradient_accumulation_count`, `gradient_accumulation_steps_per_replica` or "
    "`steps_per_execution` depending on the API used."
)
GROUPED, INTERLEAVED, SEQUENTIAL = PipelineSchedule.Grouped, PipelineSchedule.Interleaved, PipelineSchedule.Sequential


def training_of(weights: list[tf.Variable]) -> Callable[[tf.Tensor], OptimizerFunctionOutput]:
    """The optimizer function of a pipeline with these weights: gradient descent at a rate of 0.1."""
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(weights)
    return lambda loss: OptimizerFunctionOutput(optimizer, loss, variables=weights)


def run(count: int, schedule: PipelineSchedule, training: bool, stages: int = 3, **options: Any) -> np.ndarray:
    """Runs a pipeline of one variable in each stage, or of none for inference; gives its rows."""
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(4) as strategy, strategy.scope():
        weights = [tf.Variable(2.0) for _ in range(stages)]
        trained = training_of(weights) if training else None

        def stage(number: int) -> Any:
            if number == 0:
                return lambda: weights[0] * 3.0
            return lambda h: h * weights[number]

        def program() -> None:
            pipeline(
                [stage(number) for number in range(stages)],
                count,
                outfeed_queue=outfeed,
                optimizer_function=trained,
                pipeline_schedule=schedule,
                **options,
            )

        strategy.run(tf.function(program, autograph=False))
    [rows] = tf.nest.flatten(outfeed.dequeue())
    return np.asarray(rows)


@pytest.mark.parametrize(
    ("count", "schedule", "training", "text"),
    [
        (4, GROUPED, False, "must be a multiple of 3, but it is 4. "),
        (9, GROUPED, True, "must be a multiple of 6, but it is 9. "),
        (5, INTERLEAVED, True, "must be a multiple of 3, but it is 5. "),
        (0, GROUPED, True, "must be at least 6, but it is 0. "),
        (0, GROUPED, False, "must be at least 3, but it is 0. "),
        (0, INTERLEAVED, True, "must be at least 3, but it is 0. "),
        (0, SEQUENTIAL, True, "must be at least 1, but it is 0. "),
    ],
)
def test_a_count_that_a_schedule_cannot_run(count: int, schedule: PipelineSchedule, training: bool, text: str) -> None:
    with device_work() as work, pytest.raises(tf.errors.FailedPreconditionError) as caught:
        run(count, schedule, training)
    assert f"The number of iterations of the pipeline {text}{OTHER_NAMES}" in str(caught.value)
    assert work.counts.executions == 0


@pytest.mark.parametrize(
    ("count", "schedule", "training"),
    [(3, GROUPED, False), (6, GROUPED, True), (3, INTERLEAVED, True), (1, SEQUENTIAL, True), (1, SEQUENTIAL, False)],
)
def test_the_least_count_that_a_schedule_can_run(count: int, schedule: PipelineSchedule, training: bool) -> None:
    np.testing.assert_allclose(run(count, schedule, training), [24.0] * count)


def test_in_inference_an_interleaved_schedule_may_share_ipus() -> None:
    rows = run(4, INTERLEAVED, False, stages=2, device_mapping=[0, 0])
    np.testing.assert_allclose(rows, np.full(rows.shape, 12.0))
    assert rows.shape == (4, 4)  # four replicas, as the pipeline takes one of four IPUs


def test_an_optimizer_without_variables_is_refused() -> None:
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    def program() -> None:
        pipeline(
            [lambda: tf.constant(1.0), lambda x: x],
            4,
            outfeed_queue=outfeed,
            optimizer_function=lambda loss: OptimizerFunctionOutput(keras.optimizers.SGD(), loss),
        )

    wanted = "No variables to optimize. When using OptimzerV2, OptimizerFunctionOutput must contain a list of variables"
    with ipus(2) as strategy, pytest.raises(RuntimeError, match=wanted):
        strategy.run(tf.function(program, autograph=False))


def test_options_of_backward_passes_are_checked_in_training() -> None:
    options: dict[str, Any] = {"backward_propagation_stages_poplar_options": [PipelineStageOptions()]}
    wanted = "backward_propagation_stages_poplar_options must be a list or a tuple of PipelineStageOptions objects of "
    with pytest.raises(ValueError, match=wanted + "length 3 .* but is 1"):
        run(6, GROUPED, True, **options)
    run(3, GROUPED, False, **options)


def test_a_loss_for_an_outfeed_that_is_not_there() -> None:
    def program() -> None:
        pipeline(
            [lambda: tf.constant(1.0), lambda x: x],
            4,
            optimizer_function=lambda loss: OptimizerFunctionOutput(keras.optimizers.SGD(), loss),
            outfeed_loss=True,
        )

    with ipus(2) as strategy, pytest.raises(ValueError, match="outfeed_queue must be provided when outfeed_loss"):
        strategy.run(tf.function(program, autograph=False))


def test_pipelines_of_one_program_run_one_after_the_other() -> None:
    """Graphcore's compiler takes one pipeline a program; here the second sees the weights that the first left."""
    outfeeds = [ipu.ipu_outfeed_queue.IPUOutfeedQueue() for _ in range(2)]
    with ipus(2) as strategy, strategy.scope(), device_work() as work:
        weight = tf.Variable(2.0)
        trained = training_of([weight])

        def stages() -> list[Any]:
            return [lambda: weight * 3.0, lambda x: x * x]

        def program() -> None:
            pipeline(stages(), 4, outfeed_queue=outfeeds[0], optimizer_function=trained)
            pipeline(stages(), 2, outfeed_queue=outfeeds[1])

        strategy.run(tf.function(program, autograph=False))
    after = 2.0 - 0.1 * 4 * 18 * 2.0
    np.testing.assert_allclose(weight.numpy(), after, rtol=1e-5)
    shown = [np.ravel(tf.nest.flatten(outfeed.dequeue())[0]) for outfeed in outfeeds]
    np.testing.assert_allclose(shown[0], [36.0] * 4, rtol=1e-5)
    np.testing.assert_allclose(shown[1], [9 * after**2] * 2, rtol=1e-5)
    assert work.counts.steps == 6
