"""Collectives over the whole grid of replicas and dtypes, against NumPy; and in diverging branches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops.all_to_all_op import all_gather, all_to_all
from ipu_tf.ops.cross_replica_ops import assume_equal_across_replicas, cross_replica_mean, cross_replica_sum
from ipu_tf.ops.reduce_scatter_op import reduce_scatter
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

REPLICAS = (1, 2, 4)
DTYPES = ("float32", "float16", "int32")
SHAPE = (8, 3)
Rows = np.ndarray
"""Values of every replica: `[replicas, *shape]`."""


def rows_for(replicas: int, dtype: str) -> Rows:
    """Small whole numbers: their sums, and halves and quarters of them, are exact in every dtype."""
    return np.random.default_rng(replicas).integers(-20, 20, [replicas, *SHAPE]).astype(dtype) * 4


def exchanged(rows: Rows) -> Rows:
    count = len(rows)
    parts = rows.reshape(count, count, SHAPE[0] // count, SHAPE[1])
    return np.stack([np.concatenate(list(parts[:, replica]), 1) for replica in range(count)])


CASES: dict[str, tuple[Callable[[tf.Tensor, int], tf.Tensor], Callable[[Rows], Rows]]] = {
    "sum": (lambda x, n: cross_replica_sum(x), lambda rows: rows.sum(0)[None].repeat(len(rows), 0)),
    "mean": (lambda x, n: cross_replica_mean(x), lambda rows: rows.mean(0)[None].repeat(len(rows), 0)),
    "sum of its own group": (lambda x, n: cross_replica_sum(x, 1), lambda rows: rows),
    "all_gather": (lambda x, n: all_gather(x, n), lambda rows: rows[None].repeat(len(rows), 0)),
    "all_to_all": (lambda x, n: all_to_all(x, 0, 1, n), exchanged),
    "reduce_scatter": (
        lambda x, n: reduce_scatter(tf.reshape(x, [-1]), n),
        lambda rows: rows.sum(0).reshape(len(rows), -1),
    ),
    "equal": (lambda x, n: assume_equal_across_replicas([x])[0], lambda rows: rows),
}
WHOLE = [name for name in CASES if name != "mean"]  # a mean of whole numbers is none


@functools.cache
def collected(replicas: int) -> dict[tuple[str, str], np.ndarray]:
    """Results of each collective for each dtype on every replica, by one program."""
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    data = {dtype: rows_for(replicas, dtype) for dtype in DTYPES}
    with ipus(replicas) as strategy, device_work() as work:

        def program() -> None:
            given = {dtype: tf.constant(rows)[replication_index()] for dtype, rows in data.items()}
            queue.enqueue(
                {
                    f"{name}/{dtype}": CASES[name][0](value, replicas)
                    for dtype, value in given.items()
                    for name in (WHOLE if dtype == "int32" else CASES)
                }
            )

        strategy.run(tf.function(program, autograph=False))
        taken = {key: array.numpy()[0] for key, array in queue.dequeue().items()}
    assert work.counts.executions == 1
    pairs = ((key.partition("/"), array) for key, array in taken.items())
    return {(name, dtype): array if replicas > 1 else array[None] for (name, _, dtype), array in pairs}


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize(("name", "dtype"), [(n, d) for d in DTYPES for n in (WHOLE if d == "int32" else CASES)])
def test_a_collective_is_what_numpy_says(name: str, dtype: str, replicas: int) -> None:
    given = collected(replicas)[name, dtype]
    assert given.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(given, CASES[name][1](rows_for(replicas, dtype)))


@pytest.mark.parametrize("replicas", REPLICAS)
def test_a_branch_that_not_every_replica_takes_ends_with_the_numbers_of_its_own_replica(replicas: int) -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(replicas) as strategy:

        def program() -> None:
            mine = tf.cast(replication_index(), tf.float32) + 1.0
            queue.enqueue(tf.cond(mine < 2.0, lambda: cross_replica_sum(mine), lambda: -mine))

        strategy.run(tf.function(program, autograph=False))
        taken = np.ravel(queue.dequeue())
    # All replicas meet in the sum, whichever of its sides each takes.
    wanted: list[Any] = [sum(range(1, replicas + 1)), *(-number for number in range(2, replicas + 1))]
    np.testing.assert_array_equal(taken, wanted)


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_a_mean_of_whole_numbers_is_refused(dtype: str, replicas: int) -> None:
    value = tf.zeros([4], dtype)
    with ipus(replicas) as strategy:
        for mean in (
            lambda: cross_replica_mean(value),
            lambda: reduce_scatter(value, replicas, "COLLECTIVE_OP_MEAN"),
            lambda: reduce_scatter([tf.zeros([4]), value], replicas, "COLLECTIVE_OP_MEAN"),
        ):
            with pytest.raises(TypeError, match=f"MEAN|mean averages floating-point numbers. Received: {dtype}. Cast"):
                strategy.run(tf.function(mean, autograph=False))


@pytest.mark.parametrize("dtype", ["int32", "float32", "bool"])
def test_logical_operators_keep_the_dtype(dtype: str) -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    rows = np.array([[1, 1, 0, 0], [1, 0, 1, 0]]).astype(dtype)
    with ipus(2) as strategy:

        def program() -> None:
            mine = tf.constant(rows)[replication_index()]
            both = reduce_scatter(mine, 2, "COLLECTIVE_OP_LOGICAL_AND")
            queue.enqueue((both, reduce_scatter(mine, 2, "COLLECTIVE_OP_LOGICAL_OR")))

        strategy.run(tf.function(program, autograph=False))
        both, either = (array.numpy()[0] for array in queue.dequeue())
    assert (both.dtype, either.dtype) == (rows.dtype, rows.dtype)
    np.testing.assert_array_equal(both.reshape(-1), rows.astype(bool).all(0).astype(dtype))
    np.testing.assert_array_equal(either.reshape(-1), rows.astype(bool).any(0).astype(dtype))
