"""Collectives between replicas, against NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._training import weight_update
from ipu_tf.device.program.collectives import all_reduce, all_reduce_each
from ipu_tf.device.program.replicas import AXIS, INSTANCES
from ipu_tf.ops.all_to_all_op import all_gather, all_to_all
from ipu_tf.ops.cross_replica_ops import assume_equal_across_replicas, cross_replica_mean, cross_replica_sum
from ipu_tf.ops.reduce_scatter_op import reduce_scatter
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

REPLICAS = [1, 2, 4]


def on_replicas(count: int, function: Callable[[tf.Tensor], Any], rows: np.ndarray) -> list[np.ndarray]:
    """Returns each tensor of `function(rows[r])` on every replica: `[replicas, *shape]`."""
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(count) as strategy, device_work() as work:

        @tf.function
        def program(data: tf.Tensor) -> None:
            queue.enqueue(tf.nest.flatten(function(data[replication_index()])))

        strategy.run(program, [tf.constant(rows)])
        taken = [array.numpy()[0] for array in queue.dequeue()]
    assert work.counts.executions == 1
    assert work.counts.replicas >= count
    return [array if count > 1 else array[None] for array in taken]


def rows_for(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, *shape)).astype(np.float32)


@pytest.mark.parametrize("count", REPLICAS)
def test_a_sum_and_its_gradient(count: int) -> None:
    rows = rows_for(count, 3, 2)

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            total = cross_replica_sum(x)
            loss = tf.reduce_sum(total * x)
        return [total, tape.gradient(loss, x)]

    total, gradient = on_replicas(count, function, rows)
    np.testing.assert_allclose(total, np.broadcast_to(rows.sum(0), rows.shape), rtol=1e-6)
    # d(sum_r total_r * x_r) / dx = total on the way that is not the sum, and the sum of what comes back through it.
    np.testing.assert_allclose(gradient, total + rows.sum(0), rtol=1e-5)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (0, 3), (64, 33)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, jnp.bfloat16])
def test_a_sum_adds_the_replicas_in_their_order(dtype: Any, shape: tuple[int, ...]) -> None:
    """To the last bit, and 16-bit numbers in 32 bits: however many replicas there are, nothing is added in pairs."""
    rows = (np.random.default_rng(0).normal(size=(5, *shape)) * 100).astype(dtype)
    summed = jax.jit(jax.vmap(lambda x: all_reduce(x, "ADD", 5), axis_name=AXIS))(rows)
    wide = rows if dtype == np.int32 else rows.astype(np.float32)
    expected = functools.reduce(np.add, wide).astype(dtype)
    assert summed.dtype == dtype
    for replica in np.asarray(summed):
        np.testing.assert_array_equal(replica, expected)


@pytest.mark.parametrize("count", REPLICAS)
def test_a_mean_of_half_precision_does_not_overflow(count: int) -> None:
    rows = np.full((count, 2), 40000.0, np.float16)
    (mean,) = on_replicas(count, lambda x: [cross_replica_mean(x)], rows)
    np.testing.assert_array_equal(mean, rows)


def test_a_mean_has_no_gradient() -> None:
    @tf.function(autograph=False)
    def program(x: tf.Tensor) -> tf.Tensor:
        return tf.gradients(cross_replica_mean(x), x)[0]

    with ipus(2) as strategy, pytest.raises(LookupError, match="gradient"):
        strategy.run(program, [tf.constant(1.0)])


@pytest.mark.parametrize(("count", "group"), [(4, 1), (4, 2), (4, 4), (2, 1), (8, 4)])
def test_groups_are_of_consecutive_replicas(count: int, group: int) -> None:
    rows = rows_for(count, 3)
    total, mean = on_replicas(count, lambda x: [cross_replica_sum(x, group), cross_replica_mean(x, group)], rows)
    grouped = rows.reshape(count // group, group, 3).sum(1).repeat(group, 0)
    np.testing.assert_allclose(total, grouped, rtol=1e-6)
    np.testing.assert_allclose(mean, grouped / group, rtol=1e-6)


def test_a_group_that_does_not_divide_the_replicas_is_refused() -> None:
    wanted = r"The replica group size \(got 3\) does not evenly divide the total number of replicas \(got 4\)"
    with pytest.raises(tf.errors.InvalidArgumentError, match=wanted):
        on_replicas(4, lambda x: [cross_replica_sum(x, 3)], rows_for(4, 1))


@pytest.mark.parametrize("op", [cross_replica_sum, cross_replica_mean])
def test_a_group_has_no_negative_size(op: Callable[..., tf.Tensor]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        op(tf.constant(1.0), -1)


@pytest.mark.parametrize("count", REPLICAS)
def test_a_gather_of_mixed_dtypes_and_its_gradient(count: int) -> None:
    rows = rows_for(count, 3)
    weights = np.arange(count * 3, dtype=np.float32).reshape(count, 3)

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            floats, integers = all_gather([x, tf.cast(x * 10, tf.int32)], count)
            loss = tf.reduce_sum(floats * weights)
        return [floats, integers, tape.gradient(loss, x)]

    floats, integers, gradient = on_replicas(count, function, rows)
    for replica in range(count):
        np.testing.assert_array_equal(floats[replica], rows)
        np.testing.assert_array_equal(integers[replica], (rows * 10).astype(np.int32))
    np.testing.assert_allclose(gradient, weights * count, rtol=1e-6)


@pytest.mark.parametrize("count", REPLICAS)
def test_an_exchange_and_its_gradient(count: int) -> None:
    rows = rows_for(count, 2 * count, 3)

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            exchanged = all_to_all(x, 0, 1, count)
            loss = tf.reduce_sum(exchanged * exchanged)
        return [exchanged, tape.gradient(loss, x)]

    exchanged, gradient = on_replicas(count, function, rows)
    for replica in range(count):
        parts = [rows[other].reshape(count, 2, 3)[replica] for other in range(count)]
        np.testing.assert_array_equal(exchanged[replica], np.concatenate(parts, 1))
    np.testing.assert_allclose(gradient, 2 * rows, rtol=1e-6)


_REDUCTIONS = {
    "ADD": lambda r: r.sum(0),
    "MUL": lambda r: r.prod(0),
    "MIN": lambda r: r.min(0),
    "MAX": lambda r: r.max(0),
    "SQUARE_ADD": lambda r: (r * r).sum(0),
    "MEAN": lambda r: r.mean(0),
}


@pytest.mark.parametrize("count", REPLICAS)
@pytest.mark.parametrize("op", sorted(_REDUCTIONS))
def test_a_reduction_of_which_each_replica_keeps_a_part(count: int, op: str) -> None:
    rows = rows_for(count, 5)
    (parts,) = on_replicas(count, lambda x: [reduce_scatter(x, count, f"COLLECTIVE_OP_{op}")], rows)
    length = -(-5 // count)
    filled = np.pad(rows, [[0, 0], [0, length * count - 5]])
    np.testing.assert_allclose(parts, _REDUCTIONS[op](filled).reshape(count, length), rtol=1e-6)


@pytest.mark.parametrize("count", [2, 4])
def test_logical_reductions_and_each_replicas_own_part(count: int) -> None:
    rows = np.random.default_rng(0).random((count, count)) > 0.5

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [reduce_scatter(x, count, f"COLLECTIVE_OP_{op}") for op in ("LOGICAL_AND", "LOGICAL_OR", "LOCAL")]

    every, any_, own = on_replicas(count, function, rows)
    np.testing.assert_array_equal(every[:, 0], rows.all(0))
    np.testing.assert_array_equal(any_[:, 0], rows.any(0))
    np.testing.assert_array_equal(own[:, 0], np.diagonal(rows))


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(ValueError, match="COLLECTIVE_OP_ADD.*Received: 'ADD'"):
        reduce_scatter(tf.zeros([4]), 2, "ADD")


def test_a_reduction_of_nothing() -> None:
    assert reduce_scatter([], 2) == []
    with pytest.raises(ValueError, match="COLLECTIVE_OP_ADD.*Received: 'ADD'"):
        reduce_scatter([], 2, "ADD")


def test_a_reduction_of_a_matrix_is_refused() -> None:
    with pytest.raises(ValueError, match="rank 1. Received: shape"):
        reduce_scatter(tf.zeros([4, 4]), 2)


def test_another_replication_factor_than_the_programs_is_refused() -> None:
    with pytest.raises(ValueError, match="replication_factor=4, but the program runs as 2 replicas"):
        on_replicas(2, lambda x: [all_gather(x, 4)], rows_for(2, 1))


def test_an_exchange_in_unequal_parts_is_refused() -> None:
    with pytest.raises(ValueError, match="splits dimension 0 into 2 equal parts"):
        on_replicas(2, lambda x: [all_to_all(x, 0, 0, 2)], rows_for(2, 3))


def test_what_is_assumed_equal_is_what_it_was() -> None:
    rows = rows_for(2, 3)
    (same,) = on_replicas(2, lambda x: [assume_equal_across_replicas({"a": x})["a"]], rows)
    np.testing.assert_array_equal(same, rows)


def test_the_index_is_the_same_in_graphs_and_in_replica_contexts() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(2) as strategy:

        @tf.function
        def program() -> None:
            index = tf.cast(replication_index(), tf.float32)
            context = tf.distribute.get_replica_context()
            queue.enqueue(
                [context.all_reduce(op, index) for op in (tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN)]
            )

        strategy.run(program)
        total, mean = queue.dequeue()
    np.testing.assert_array_equal(total, [[1.0, 1.0]])
    np.testing.assert_array_equal(mean, [[0.5, 0.5]])


def test_instances_exchange_the_sums_of_all_gradients_at_once() -> None:
    numbers = np.random.default_rng(3)
    values: list[np.ndarray] = [numbers.normal(size=(2, 3, *shape)).astype(np.float32) for shape in ((4, 2), (), (5,))]
    values += [values[2].astype(np.float16), np.arange(6, dtype=np.int32).reshape(2, 3)]

    def over_both(reduce: Callable[..., Any]) -> Any:
        return jax.vmap(jax.vmap(lambda *own: reduce(own), axis_name=AXIS), axis_name=INSTANCES)

    each = over_both(lambda own: [all_reduce(value, "ADD", 3) for value in own])(*values)
    together = over_both(lambda own: all_reduce_each(own, "ADD", 3))(*values)
    for one, other, value in zip(each, together, values, strict=True):
        assert other.dtype == value.dtype
        np.testing.assert_array_equal(one, other)
    own = [value[0] for value in values]
    inner = jax.vmap(lambda *own: all_reduce_each(own, "ADD", 3), axis_name=AXIS)
    traced = str(jax.make_jaxpr(inner, axis_env=[(INSTANCES, 2)])(*own))
    assert traced.count("= psum[") == 2  # of floating-point numbers, and of integers


@pytest.mark.parametrize("instances", [1, 2])
def test_an_update_of_several_instances_has_one_sum(instances: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_update, "program_instances", lambda: instances)
    applied: list[Any] = []
    with tf.Graph().as_default() as graph:
        gradients = [tf.ones([3]), None, tf.ones([2, 2]), tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), [4, 2])]
        weight_update.accumulate_and_apply(gradients, applied.extend, replicas=2)
        sums = [op for op in graph.get_operations() if op.type == "XlaCustomCallV2"]
    assert len(sums) == (1 if instances > 1 else 3)
    assert [None if each is None else each.shape.as_list() for each in applied] == [[3], None, [2, 2], [4, 2]]
