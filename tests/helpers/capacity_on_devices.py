"""Tests of the warning of programs that do not fit, on four JAX devices: run by `test_pipeline_run.py`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._config import capacity_check
from ipu_tf.ops.pipelining_ops import pipeline
from ipu_tf.pipeline import pipeline_counts, run_on_devices
from ipu_tf.reports import CapacityWarning
from tests.helpers.some_ipus import ipus

SIDE = 64


@pytest.fixture(autouse=True)
def anywhere() -> Iterator[None]:
    """Afterwards pipelines run where they did."""
    yield
    run_on_devices("auto")


def warned(mode: str, fits: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings of three runs of a pipeline with two matrices, of 16 KiB each."""
    monkeypatch.setattr(capacity_check, "IPU_BYTES", fits)
    run_on_devices(mode)  # type: ignore[arg-type]
    with ipus(2) as strategy, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", CapacityWarning)
        with strategy.scope():
            weights = [tf.Variable(np.eye(SIDE, dtype=np.float32)) for _ in range(2)]
        data = tf.data.Dataset.from_tensors(tf.ones([1, SIDE])).repeat()
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data), ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        @tf.function(autograph=False)
        def program() -> None:
            stages = [lambda x: x @ weights[0], lambda x: x @ weights[1]]
            pipeline(stages, gradient_accumulation_count=4, infeed_queue=infeed, outfeed_queue=outfeed)

        for _ in range(3):
            strategy.run(program)
        assert np.all(np.asarray(outfeed.dequeue()) == 1.0)
    # Up to the name of the infeed, which is another's in each run.
    return [str(each.message).partition("; infeed ")[0] for each in said if each.category is CapacityWarning]


def test_a_pipeline_is_warned_of_as_a_whole_as_on_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    on_one = warned("loop", 10_000, monkeypatch)
    before = pipeline_counts()
    on_two = warned("devices", 10_000, monkeypatch)
    counts = pipeline_counts()
    assert counts is not None and counts is not before
    assert len(on_one) == 1 and "Published for 2 IPUs" in on_one[0]
    assert on_two == on_one
    assert warned("devices", 40_000, monkeypatch) == []
