"""Collectives between the shards of a replica, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops import within_replica_ops
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

SHARDS = 4


@pytest.fixture
def session() -> Iterator[Any]:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session, ipus(SHARDS):
        yield session


def on_shards(values: np.ndarray, together: Callable[[list[tf.Tensor]], Any], order: list[int] | None = None) -> Any:
    def model() -> Any:
        tensors = []
        for shard, row in zip(order or range(len(values)), values, strict=True):
            with ipu.scopes.ipu_shard(shard):
                tensors.append(tf.constant(row) + 0)
        return together(tensors)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        return ipu.ipu_compiler.compile(model)


@pytest.mark.parametrize("length", [1, 2, 4, 5, 8, 11])
def test_parts_of_a_sum_are_as_equal_as_can_be(session: Any, length: int) -> None:
    values = np.arange(SHARDS * length, dtype=np.int32).reshape(SHARDS, length)
    program = on_shards(values, lambda shards: within_replica_ops.reduce_scatter(shards, "COLLECTIVE_OP_ADD"))
    with device_work() as did:
        parts = session.run(program)
    assert did.counts.executions == 1
    wanted = np.array_split(values.sum(0), SHARDS)
    assert {part.shape for part in parts} == {wanted[0].shape}
    for part, filled in zip(wanted, parts, strict=True):
        np.testing.assert_array_equal(filled, np.pad(part, [0, len(filled) - len(part)]))


def test_each_shard_its_own_part(session: Any) -> None:
    values = np.arange(SHARDS * 5, dtype=np.float32).reshape(SHARDS, 5)
    parts = session.run(
        on_shards(values, lambda shards: within_replica_ops.reduce_scatter(shards, "COLLECTIVE_OP_LOCAL"))
    )
    assert [list(part) for part in parts] == [[0.0, 1.0], [7.0, 0.0], [13.0, 0.0], [19.0, 0.0]]


def _total(shards: list[tf.Tensor]) -> Any:
    return within_replica_ops.all_reduce(shards, "COLLECTIVE_OP_ADD")


@pytest.mark.parametrize("together", [within_replica_ops.all_gather, _total])
def test_another_order_is_an_error_when_the_program_runs(session: Any, together: Any) -> None:
    program = on_shards(np.ones([2, 3], np.float32), together, order=[1, 0])
    with pytest.raises(tf.errors.FailedPreconditionError, match="Tensor 0 of input_shards must be on shard 0"):
        session.run(program)
