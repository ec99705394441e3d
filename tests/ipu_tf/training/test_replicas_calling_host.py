"""Loops and branches of replicated programs that call the host: conditions that replicas share, and others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops import embedding_ops
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

COUNT = 2


def given(kind: str) -> Any:
    """A number of iterations, 3, as a program may be given it."""
    return {"number": 3, "array": np.int32(3), "tensor": tf.constant(3), "variable": tf.Variable(3)}[kind]


def nested(queue: Any, steps: Any, trips: Any, start: Any) -> tf.Tensor:
    """Enqueues in a loop in a loop; gives how many iterations the replica ran."""
    total = tf.constant(0)
    for step in tf.range(steps):
        inner = tf.constant(0)
        while inner < trips:
            queue.enqueue(start + tf.cast(10 * step + inner, tf.float32))
            inner += 1
        total += inner
    return total


@pytest.mark.parametrize("outer", ["number", "tensor"])
@pytest.mark.parametrize("inner", ["number", "array", "tensor", "variable"])
def test_a_nested_loop_that_enqueues(outer: str, inner: str) -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(COUNT) as strategy:
        program = tf.function(lambda *args: nested(queue, *args))
        total = strategy.run(program, [given(outer), given(inner), tf.constant(0.5)])
        elements = queue.dequeue().numpy()
    assert int(total) == 9
    wanted = [0.5 + 10 * step + inner for step in range(3) for inner in range(3)]
    np.testing.assert_array_equal(elements, np.repeat(wanted, COUNT).reshape(-1, COUNT))


def test_a_loop_that_is_longer_on_one_replica() -> None:
    """Elements are given as long as any replica gives one; each replica keeps what its own iterations gave it."""
    queue, counts = (ipu.ipu_outfeed_queue.IPUOutfeedQueue() for _ in range(2))

    @tf.function
    def program(start: tf.Tensor) -> None:
        counts.enqueue(nested(queue, 2, 1 + replication_index(), start))

    with ipus(COUNT) as strategy:
        strategy.run(program, [tf.constant(0.0)])
        elements = queue.dequeue().numpy()
        np.testing.assert_array_equal(counts.dequeue(), [[2, 4]])
    np.testing.assert_array_equal(elements[:, 1], [0, 1, 10, 11])
    np.testing.assert_array_equal(elements[[0, 2], 0], [0, 10])


def test_replicas_take_their_own_elements_in_nested_loops() -> None:
    """A replica whose loop is over takes none."""
    with ipus(COUNT) as strategy:
        with strategy.scope():
            iterator = iter(tf.data.Dataset.range(100, output_type=tf.int32))
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        @tf.function
        def program(iterator: Any, trips: tf.Tensor) -> None:
            total, step = tf.constant(0), tf.constant(0)
            while step < trips:
                while step < trips + replication_index():
                    total += next(iterator)
                    step += 1
            queue.enqueue(total)

        strategy.run(program, [iterator, tf.constant(2)])
        np.testing.assert_array_equal(queue.dequeue(), [[0 + 2, 1 + 3 + 4]])
        strategy.run(program, [iterator, tf.constant(1)])
        np.testing.assert_array_equal(queue.dequeue(), [[5, 6 + 7]])


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("alike", [True, False])
def test_a_branch_that_takes_an_element(taken: bool, alike: bool) -> None:
    with ipus(COUNT) as strategy:
        with strategy.scope():
            iterator = iter(tf.data.Dataset.range(7, 100, output_type=tf.int32))
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        @tf.function
        def program(iterator: Any, wanted: tf.Tensor) -> None:
            for _ in tf.range(2):
                value = tf.constant(-1)
                if wanted and (alike or replication_index() == 1):
                    value = next(iterator)
                queue.enqueue(value)

        strategy.run(program, [iterator, tf.constant(taken)])
        elements = queue.dequeue().numpy().tolist()
    wanted = [[7, 8], [9, 10]] if alike else [[-1, 7], [-1, 8]]
    assert elements == (wanted if taken else [[-1, -1], [-1, -1]])


@pytest.mark.parametrize("own", [False, True])
def test_a_branch_that_trains_a_table_on_the_host(own: bool) -> None:
    table = np.ones((4, 2), np.float32)
    spec = embedding_ops.HostEmbeddingOptimizerSpec(0.5)
    words = embedding_ops.create_host_embedding("words", [4, 2], tf.float32, optimizer_spec=spec, initializer=table)

    @tf.function
    def program(trained: tf.Tensor) -> tf.Tensor:
        loss = tf.constant(0.0)
        if trained and (not own or replication_index() == 1):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(words.lookup(tf.reshape(replication_index(), [1])))
            tape.gradient(loss, tape.watched_variables())
        return loss

    with ipus(COUNT) as strategy, words.register():
        assert float(strategy.run(program, [tf.constant(False)])) == 0.0
        np.testing.assert_array_equal(words.get_embedding_tensor(), table)
        strategy.run(program, [tf.constant(True)])
        changed = words.get_embedding_tensor().numpy()
    table[1 if own else slice(0, 2)] = 0.5
    np.testing.assert_array_equal(changed, table)


def test_a_counted_loop_that_is_longer_on_another_replica_than_the_first() -> None:
    """A loop that is streamed goes on as long as any replica does, and then runs on all of them."""
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def program() -> tf.Tensor:
        total = tf.constant(0)
        for _ in tf.range(1 + 2 * replication_index()):
            total += 1
            queue.enqueue(total)
        return total

    with ipus(COUNT) as strategy:
        total = strategy.run(program)
        np.testing.assert_array_equal(queue.dequeue(), [[1, 1], [2, 2], [3, 3]])
    assert int(total) == 3


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 9])
def test_a_branch_that_calls_the_host_is_the_last_one_for_an_index_out_of_range(
    index: int, capfd: pytest.CaptureFixture[str]
) -> None:
    def branch(name: str, value: tf.Tensor) -> Any:
        def run() -> tf.Tensor:
            ipu.internal_ops.print_tensor(value, name)
            return value

        return run

    def program(k: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return tf.switch_case(k, [branch("first", x), branch("last", -x)])

    with ipus(COUNT) as strategy, device_work() as work:
        given = strategy.run(tf.function(program, autograph=False), [tf.constant(index), tf.constant(2.0)])
    assert work.counts.executions == 1
    assert float(given) == (2.0 if index == 0 else -2.0)
    printed = capfd.readouterr().err
    assert ("first" in printed, "last" in printed) == (index == 0, index != 0)
