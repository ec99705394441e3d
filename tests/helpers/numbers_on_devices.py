"""Numbers of pipelines on four JAX devices, against plain accumulation: a part of the grid of `pipeline_numbers`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ipu_tf.ops.pipelining_ops import PipelineSchedule
from ipu_tf.pipeline import run_on_devices
from tests.helpers.pipeline_numbers import STAGES, THEN, WITH, Case, grid, worst

OWN = tuple(range(STAGES))


@pytest.fixture(autouse=True)
def devices() -> Iterator[None]:
    """Pipelines run on devices or not at all."""
    run_on_devices("devices")
    yield
    run_on_devices("auto")


@pytest.mark.parametrize(
    "case",
    [
        Case("dense", PipelineSchedule.Grouped, WITH, (0, 1, 1, 0), 1, 4 * STAGES),
        Case("convolution", PipelineSchedule.Interleaved, THEN, OWN, 1, STAGES),
        pytest.param(Case("transformer", PipelineSchedule.Sequential, WITH, OWN, 1, 1), marks=pytest.mark.slow),
        Case("transformer", PipelineSchedule.Grouped, THEN, OWN, 1, 2 * STAGES),
        Case("dense", PipelineSchedule.Sequential, WITH, (0, 1, 1, 0), 2, 1),
        pytest.param(
            Case("convolution", PipelineSchedule.Grouped, THEN, (0, 1, 1, 0), 2, 2 * STAGES), marks=pytest.mark.slow
        ),
    ],
    ids=str,
)
def test_a_pipeline_is_plain_accumulation(case: Case) -> None:
    assert case in grid()
    assert worst(case)[0] <= 1e-5, worst(case)
