"""Pipelines on one device have the numbers of plain accumulation: a part of the grid of `pipeline_numbers`."""

from __future__ import annotations

import pytest

from ipu_tf.ops.pipelining_ops import PipelineSchedule
from tests.helpers.pipeline_numbers import STAGES, WITH, Case, differences, grid, piped, plain, plain_once, worst

TOLERANCE = 1e-5
OWN = tuple(range(STAGES))


@pytest.mark.parametrize(
    "case",
    [
        Case("dense", PipelineSchedule.Sequential, None, (0, 1, 1, 0), 1, 1),
        Case("dense", PipelineSchedule.Interleaved, None, OWN, 2, STAGES),
        Case("convolution", PipelineSchedule.Grouped, WITH, OWN, 1, 2 * STAGES),
        Case("convolution", PipelineSchedule.Sequential, WITH, (0, 0, 0, 0), 2, 1),
        Case("transformer", PipelineSchedule.Grouped, None, (0, 0, 0, 0), 2, 2 * STAGES),
    ],
    ids=str,
)
def test_a_pipeline_is_plain_accumulation(case: Case) -> None:
    assert case in grid()
    assert worst(case)[0] <= TOLERANCE, worst(case)


def test_every_micro_batch_counts() -> None:
    """Whichever micro-batch is left out of the expectation, the comparison sees it."""
    case = Case("dense", PipelineSchedule.Interleaved, None, OWN, 1, STAGES)
    found = piped(case)
    whole = differences(found, plain_once(case.model, case.count, 1))
    assert max(size for name, size in whole.items() if "Momentum" not in name) <= TOLERANCE
    for dropped in range(case.count):
        without = differences(found, plain(case.model, case.count, 1, dropped))
        assert min(size for name, size in without.items() if "kernel" in name) > 100 * TOLERANCE
