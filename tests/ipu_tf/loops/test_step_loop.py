"""A TensorFlow step looped on the device: the outputs of a run are its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

from ipu_tf._loops.step_loop import LoopOptions, StepLoop
from ipu_tf._loops.tensor_feed import TensorFeed
from ipu_tf._loops.tensorflow_step import TensorFlowStep
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

STEPS = 24


def elements(good: int) -> Iterator[tf.Tensor]:
    """0., 1., ... and a source that fails after so many."""
    for number in range(good):
        yield tf.constant(float(number))
    raise OSError("gone")


@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize("good", [0, 1, 9])
def test_elements_of_a_run_that_failed_are_not_the_next_ones(good: int, stepwise: bool) -> None:
    with ipus(1), device_work() as work:
        step = TensorFlowStep(lambda x: 2 * x, tf.TensorSpec([], tf.float32))
        loop = StepLoop(step, LoopOptions(all_outputs=True, stepwise=stepwise))
        with pytest.raises(OSError, match="gone"):
            loop.run((), TensorFeed(elements(good)), STEPS).raise_for_error()
        ran = loop.run((), TensorFeed(elements(STEPS)), STEPS).raise_for_error()
    assert (ran.steps, work.counts.steps, work.counts.executions) == (STEPS, good + STEPS, 1 + (good > 0))
    np.testing.assert_array_equal(ran.outputs, 2 * np.arange(STEPS))
