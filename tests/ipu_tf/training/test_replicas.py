"""Programs that run as replicas: shared and per-replica values, by `vmap` and by `shard_map`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._training.replication import replicas_that_fit
from ipu_tf.ops.cross_replica_ops import cross_replica_sum
from ipu_tf.ops.replication_ops import replication_index
from ipu_tf.scopes import ipu_shard
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus


@pytest.mark.parametrize("count", [1, 2, 4, 16])
def test_infeed_elements_go_round_the_replicas_and_outfeed_elements_come_from_all(count: int) -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(count) as strategy, strategy.scope(), device_work() as work:
        iterator = iter(tf.data.Dataset.range(1000).map(lambda i: tf.cast(i, tf.int32)))

        @tf.function
        def program(iterator: tf.data.Iterator, steps: tf.Tensor) -> None:
            for _ in tf.range(steps):
                queue.enqueue(next(iterator))

        for steps in (3, 2):
            strategy.run(program, [iterator, tf.constant(steps)])
        elements = queue.dequeue().numpy()
    assert elements.shape == ((5, count) if count > 1 else (5,))
    np.testing.assert_array_equal(elements.ravel(), np.arange(5 * count))
    assert work.counts.steps == 5


def test_variables_are_each_replicas_own_and_the_host_sees_replica_0() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(4) as strategy:
        variable = tf.Variable(10.0)

        @tf.function
        def program() -> tf.Tensor:
            variable.assign_add(tf.cast(replication_index(), tf.float32) + 1.0)
            queue.enqueue(variable.read_value())
            return variable.read_value()

        first = strategy.run(program)
        assert (float(first), float(variable.numpy())) == (11.0, 11.0)
        strategy.run(program)
        np.testing.assert_array_equal(queue.dequeue(), [[11.0, 12.0, 13.0, 14.0], [12.0, 14.0, 16.0, 18.0]])
        variable.assign(0.0)  # what the host writes reaches every replica
        strategy.run(program)
        np.testing.assert_array_equal(queue.dequeue(), [[1.0, 2.0, 3.0, 4.0]])


def test_a_program_on_more_shards_has_fewer_replicas_and_starts_from_replica_0() -> None:
    queues = [ipu.ipu_outfeed_queue.IPUOutfeedQueue() for _ in range(2)]
    with ipus(4) as strategy:
        variable = tf.Variable(0.0)

        @tf.function
        def alone() -> None:
            variable.assign_add(tf.cast(replication_index(), tf.float32) + 1.0)
            queues[0].enqueue(variable.read_value())

        @tf.function
        def sharded() -> None:
            with ipu_shard(1):
                variable.assign_add(tf.cast(replication_index(), tf.float32) * 10.0)
            queues[1].enqueue(variable.read_value())

        strategy.run(alone)
        strategy.run(sharded)
        np.testing.assert_array_equal(queues[0].dequeue(), [[1.0, 2.0, 3.0, 4.0]])
        np.testing.assert_array_equal(queues[1].dequeue(), [[1.0, 11.0]])


@pytest.mark.parametrize(("ipus_there", "shards", "replicas"), [(1, 1, 1), (4, 1, 4), (4, 2, 2), (8, 3, 2), (16, 5, 2)])
def test_a_replica_takes_a_power_of_two_of_ipus(ipus_there: int, shards: int, replicas: int) -> None:
    assert replicas_that_fit(ipus_there, shards) == replicas


@pytest.mark.parametrize(("ipus_there", "shards"), [(1, 2), (2, 3), (6, 4)])
def test_shards_that_do_not_divide_the_ipus_are_refused(ipus_there: int, shards: int) -> None:
    with pytest.raises(tf.errors.InternalError, match=f"device with {ipus_there} IPUs and {shards} shards"):
        replicas_that_fit(ipus_there, shards)


def test_replicas_draw_different_random_numbers_unless_they_are_asked_to_agree() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def program() -> None:
        queue.enqueue(tf.random.uniform([8]))

    with ipus(2) as strategy:
        drawn = {}
        for identical in (False, True):
            for again in range(2):
                ipu.utils.reset_ipu_seed(7, experimental_identical_replicas=identical)
                strategy.run(program)
                drawn[identical, again] = queue.dequeue().numpy()[0]
    for identical in (False, True):
        np.testing.assert_array_equal(drawn[identical, 0], drawn[identical, 1])
        assert np.array_equal(drawn[identical, 0][0], drawn[identical, 0][1]) == identical


def test_a_data_dependent_loop_goes_on_while_any_replica_does() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(2) as strategy:

        @tf.function
        def program() -> tf.Tensor:
            value = tf.constant(0.0)
            while cross_replica_sum(value) < 10.0:
                value += tf.cast(replication_index(), tf.float32) + 1.0
                queue.enqueue(value)
            return value

        strategy.run(program)
        np.testing.assert_array_equal(queue.dequeue(), [[1, 2], [2, 4], [3, 6], [4, 8]])


def test_an_infeed_that_ends_within_a_step_keeps_what_that_step_took() -> None:
    with ipus(2) as strategy, strategy.scope():
        total = tf.Variable(0.0)
        iterator = iter(tf.data.Dataset.range(5).map(lambda i: tf.cast(i, tf.float32)))

        @tf.function
        def program(iterator: tf.data.Iterator) -> None:
            for _ in tf.range(4):
                total.assign_add(cross_replica_sum(next(iterator)))

        with pytest.raises(tf.errors.OutOfRangeError, match="ran out of data after 5 elements"):
            strategy.run(program, [iterator])
        assert float(total.numpy()) == 0 + 1 + 2 + 3


def test_a_queue_deep_inside_of_a_replicated_program_serves_the_replicas_in_turn() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(2) as strategy, strategy.scope():
        iterator = iter(tf.data.Dataset.range(100).map(lambda i: tf.cast(i, tf.float32)))

        @tf.function
        def program(iterator: tf.data.Iterator) -> tf.Tensor:
            value = tf.constant(0.0)
            for _ in tf.range(2):
                for _ in tf.range(3):
                    value += next(iterator)
                    queue.enqueue(value)
            return value

        assert float(strategy.run(program, [iterator])) == sum(range(0, 12, 2))
    elements = queue.dequeue().numpy()
    np.testing.assert_array_equal(elements, np.cumsum(np.arange(12).reshape(6, 2), 0))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("every", [1, 2, 3])
def test_elements_given_in_a_branch_are_staged_too(every: int, count: int) -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(count) as strategy:

        @tf.function
        def program(total: tf.Tensor) -> None:
            for step in tf.range(total):
                if step % every == every - 1:
                    queue.enqueue(step)

        strategy.run(program, [tf.constant(7)])
        elements = queue.dequeue().numpy()
    np.testing.assert_array_equal(elements.reshape(-1, count)[:, 0], np.arange(every - 1, 7, every))


_PROGRAM = """
    import json, sys
    import numpy as np, tensorflow as tf, ipu_tf as ipu, jax
    from ipu_tf.ops.cross_replica_ops import cross_replica_mean
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    strategy = ipu.ipu_strategy.IPUStrategy()
    rng = np.random.default_rng(0)
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with strategy.scope():
        data = rng.normal(size=(32, 8, 8, 3)).astype(np.float32)
        iterator = iter(tf.data.Dataset.from_tensor_slices(data).batch(2, drop_remainder=True))
        kernel = tf.Variable(rng.normal(size=(3, 3, 3, 4)).astype(np.float32))

        @tf.function
        def program(iterator):
            for _ in tf.range(4):
                x = next(iterator)
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.nn.conv2d(x, kernel, 1, "SAME") ** 2)
                kernel.assign_sub(0.1 * cross_replica_mean(tape.gradient(loss, kernel)))
                queue.enqueue(loss)

        strategy.run(program, [iterator])
    print(json.dumps([len(jax.devices()), queue.dequeue().numpy().tolist(), kernel.numpy().tolist()]))
"""


def test_replicas_on_devices_of_their_own_give_the_numbers_of_one_device(tmp_path: Path) -> None:
    given, script = [], tmp_path / "program.py"
    script.write_text(textwrap.dedent(_PROGRAM))  # in a file, where AutoGraph finds its source
    for devices in (1, 4):
        flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        environment = {**os.environ, **flags, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
        command = [sys.executable, str(script)]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=True)
        given.append(json.loads(ran.stdout.splitlines()[-1]))
    (one, losses, kernel), (four, losses_apart, kernel_apart) = given
    assert (one, four) == (1, 4)
    np.testing.assert_allclose(losses_apart, losses, rtol=1e-5)
    np.testing.assert_allclose(kernel_apart, kernel, rtol=1e-5, atol=1e-6)
