"""Tests for `RunRecord`: the times of executions that it keeps."""

from __future__ import annotations

import gc
import time

import pytest

from ipu_tf.device.run.run_record import RunRecord


def executed(record: RunRecord, count: int) -> None:
    for steps in range(1, count + 1):
        record.executed(time.perf_counter() - steps, steps)


def test_the_last_thousand_executions_are_kept() -> None:
    record = RunRecord()
    executed(record, 1234)
    assert record.executions == 1234
    assert [span.steps for span in record.last] == list(range(235, 1235))
    assert [span.seconds for span in record.last] == pytest.approx(range(235, 1235), abs=1.0)
    assert record.seconds == pytest.approx(1234 * 1235 / 2, rel=1e-3)


def test_an_execution_adds_nothing_for_the_garbage_collector() -> None:
    """A deque of 1,000 records for each program was 1,000 objects more at each collection."""
    record = RunRecord()
    executed(record, 1)
    gc.collect()
    before = len(gc.get_objects())
    executed(record, 900)
    gc.collect()
    assert len(gc.get_objects()) - before < 50


def test_an_execution_has_begun_whether_it_ends_or_not() -> None:
    record = RunRecord()
    assert record.begun_last is None and record.last == ()
    with record.measuring():
        assert record.begun_last == pytest.approx(time.perf_counter(), abs=60.0)
    assert record.executions == 0 and record.last == ()
