"""Functions and graphs that were traced for one configuration of the device, and run under another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._compat.tf1_batch_norm import batch_normalization
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

pytestmark = pytest.mark.filterwarnings("ignore:.layer.apply. is deprecated:UserWarning")
tf1 = tf.compat.v1
SUM, MEAN = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
ONE = tf.constant(1.0)


def reducing(op: tf.distribute.ReduceOp = SUM) -> Any:
    """A function that reduces its argument over replicas."""
    return tf.function(lambda x: tf.distribute.get_replica_context().all_reduce(op, x))


@pytest.mark.parametrize("counts", [(1, 2, 4, 1), (2, 1)])
def test_a_function_reduces_over_the_replicas_of_each_configuration(counts: tuple[int, ...]) -> None:
    step = reducing()
    for count in counts:
        with ipus(count) as strategy:
            assert float(strategy.run(step, (ONE,))) == count
            assert float(strategy.run(tf.function(lambda x: step(x) + 1.0), (ONE,))) == count + 1


@pytest.mark.parametrize("whole", [True, False])
def test_devices_of_one_configuration_each_have_their_replicas(whole: bool) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = [1, 2]
    config.configure_ipu_system()
    step, strategies = reducing(), [ipu.ipu_strategy.IPUStrategy(f"/device:IPU:{n}") for n in (0, 1)]
    runs = [step if whole else tf.function(lambda x: step(x)) for _ in strategies]
    found = [float(strategy.run(run, (ONE,))) for strategy, run in zip(strategies, runs, strict=True)]
    ipu.config.reset_ipu_configuration()
    assert found == [1.0, 2.0]


def test_compile_traces_for_each_configuration() -> None:
    step = reducing()
    for count in (1, 2):
        with ipus(count) as strategy, ipu.scopes.ipu_scope("/device:IPU:0"), strategy.replica_context():
            [total] = ipu.ipu_compiler.compile(lambda: step(tf.constant(1.0)))
        assert float(total) == count


def test_a_new_graph_traces_for_the_configuration_and_an_old_one_is_refused() -> None:
    step, outers = reducing(MEAN), []
    for count in (1, 2):
        with ipus(count) as strategy:
            outers.append(tf.function(lambda x, strategy=strategy: strategy.run(step, (x,)) + 1.0))
            assert float(outers[-1](ONE)) == 2.0
    with ipus(2), pytest.raises(tf.errors.OpError, match="traced for one replica.* configured for 2 replicas"):
        outers[0](ONE)
    with ipus(1), device_work() as work:
        assert float(outers[1](ONE)) == 2.0
    assert work.counts.executions == 1


def test_a_graph_without_reductions_runs_on_any_number_of_replicas() -> None:
    double = tf.function(lambda x: x * 2.0)
    with ipus(1) as strategy:
        outer = tf.function(lambda x: strategy.run(double, (x,)))
        assert float(outer(ONE)) == 2.0
    with ipus(2), device_work() as work:
        assert float(outer(ONE)) == 2.0
    assert work.counts.executions == 1


def test_slices_that_are_not_reduced_stay_slices() -> None:
    table = tf.Variable(tf.reshape(tf.range(6.0), [3, 2]))

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [2, 0, 2]))
        return tape.gradient(loss, table)

    def reduced() -> Any:
        return tf.distribute.get_replica_context().all_reduce(SUM, step())

    stock = tf.function(step)()
    with ipus(1) as strategy:
        found = strategy.run(tf.function(reduced))
    assert isinstance(stock, tf.IndexedSlices) and isinstance(found, tf.IndexedSlices)
    np.testing.assert_array_equal(found.indices, stock.indices)
    np.testing.assert_array_equal(found.values, stock.values)


def test_a_graph_made_before_groups_of_batch_normalisation_are_configured_is_refused() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    x = np.random.default_rng(1).normal(size=(2, 2, 4, 4, 3)).astype(np.float32)

    def program() -> tf.Operation:
        return queue.enqueue([batch_normalization(tf.constant(x)[replication_index()], training=True)])

    with tf.Graph().as_default(), tf1.Session() as session:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(program)
        session.run(tf1.global_variables_initializer())
        with ipus(2, norm_group=1):
            session.run(run)
        with ipus(2, norm_group=2), pytest.raises(tf.errors.FailedPreconditionError, match="groups of 1 replicas; "):
            session.run(run)
