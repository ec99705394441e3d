"""Datasets are divided among instances as their options say, and in the order of one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu_tf import distributed, ipu_strategy
from ipu_tf._strategy import auto_shard
from ipu_tf.emulation import EmulationError
from keras_ipu.training.common import first_batch, instance_data

POLICY = tf.data.experimental.AutoShardPolicy


def with_policy(data: tf.data.Dataset, policy: Any) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return data.with_options(options)


@pytest.fixture
def instance(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes this process one of two instances; they are not started."""

    def become(index: int) -> None:
        for module in (auto_shard, instance_data):
            monkeypatch.setattr(module, "instance_count", lambda: 2)
        for module in (auto_shard, first_batch):
            monkeypatch.setattr(module, "instance_index", lambda: index)

    become(0)
    return become


def numbers(data: tf.data.Dataset) -> list[int]:
    """The first number of each batch."""
    return [int(np.ravel(tf.nest.flatten(batch)[0])[0]) for batch in data]


BATCHES = tf.data.Dataset.range(16).batch(2)
KINDS = {
    "plain": BATCHES,
    "structure": BATCHES.map(lambda x: (x, ({"a": x}, tf.as_string(x)))),
    "unknown length": BATCHES.filter(tf.autograph.experimental.do_not_convert(lambda x: x[0] >= 0)),
    "repeated": BATCHES.repeat(1).shuffle(1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_divided_in_the_order_of_one_process(kind: str, instance: Callable[[int], None]) -> None:
    data, first = with_policy(KINDS[kind], POLICY.DATA), []
    for index, (single, pairs) in enumerate((([0, 4, 8, 12], [0, 2, 8, 10]), ([2, 6, 10, 14], [4, 6, 12, 14]))):
        instance(index)
        assert numbers(auto_shard.sharded(data, 1)) == single
        share = auto_shard.sharded(data, 2, lambda arrays: first.append(arrays[0][0]))
        assert numbers(share) == pairs
        assert numbers(auto_shard.sharded(share, 2)) == pairs  # it is sharded once
        assert int(share.cardinality()) == (4 if int(data.cardinality()) == 8 else tf.data.UNKNOWN_CARDINALITY)
    assert first == [0, 0] * 2  # each share is read twice here


@pytest.mark.parametrize("policy", [POLICY.AUTO, POLICY.OFF])
def test_nothing_is_divided_by_itself_or_in_one_process(policy: Any, instance: Callable[[int], None]) -> None:
    assert auto_shard.sharded(with_policy(BATCHES, policy), 1) is not BATCHES
    assert numbers(auto_shard.sharded(with_policy(BATCHES, policy), 1)) == numbers(BATCHES)


def test_files_and_hints_are_divided_as_tensorflow_does(tmp_path: Path, instance: Callable[[int], None]) -> None:
    for file in range(3):
        (tmp_path / str(file)).write_text(f"{file}0\n{file}1")
    lines = tf.data.TextLineDataset([str(tmp_path / str(file)) for file in range(3)]).batch(1)
    hint = tf.data.experimental.SHARD_HINT
    for index, files, hinted in ((0, [0, 1, 20, 21], [0, 4, 8, 12]), (1, [10, 11], [2, 6, 10, 14])):
        instance(index)
        assert numbers(auto_shard.sharded(with_policy(lines, POLICY.FILE), 1).map(tf.strings.to_number)) == files
        assert numbers(auto_shard.sharded(with_policy(BATCHES.shard(hint, hint), POLICY.HINT), 1)) == hinted
    with pytest.raises(ValueError, match=r"AutoShardPolicy.FILE needs a dataset that reads files.* Received: one of"):
        auto_shard.sharded(with_policy(BATCHES, POLICY.FILE), 1)


def test_batches_that_do_not_fill_the_last_step_are_refused(instance: Callable[[int], None]) -> None:
    with pytest.raises(ValueError, match=r"must have a multiple of 4 batches: .* Received: 6\."):
        auto_shard.sharded(with_policy(BATCHES.skip(2), POLICY.DATA), 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have a multiple of 4 batches"):
        numbers(auto_shard.sharded(with_policy(KINDS["unknown length"].skip(2), POLICY.DATA), 2))


def test_strategies_distribute_as_the_policy_says(
    instance: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    instance(1)
    for name, value in (("instance_count", 2), ("instance_index", 1)):
        monkeypatch.setattr(ipu_strategy, name, lambda value=value: value)
    strategy = ipu_strategy.IPUStrategy()
    assert numbers(strategy.experimental_distribute_dataset(with_policy(BATCHES, POLICY.DATA))) == [2, 6, 10, 14]
    own = strategy.distribute_datasets_from_function(
        lambda context: BATCHES.shard(context.num_input_pipelines, context.input_pipeline_id)
    )
    assert numbers(own) == [2, 6, 10, 14]


class Model:
    name = "net"


@pytest.mark.parametrize(("checksums", "by_data", "said"), [
    ([1, 1], False, "net: instances 0, 1 train on the same data"),
    ([1, 2], False, ""),
    ([1, 1], True, ""),
    ([1, 2], True, "the same order in all 2 instances. Received: another first batch"),
])  # fmt: skip
def test_first_batches_are_compared(
    checksums: list[int], by_data: bool, said: str, instance: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(distributed, "allgather", lambda own, tensor_name: checksums)
    first = first_batch.FirstBatch(Model(), by_data, quiet=False)
    try:
        first.compare()
    except EmulationError as error:
        assert said in str(error) and by_data
    else:
        assert said in caplog.text and bool(said) == bool(caplog.text)
