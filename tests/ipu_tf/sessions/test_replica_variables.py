"""Variables of replicated programs in TensorFlow 1 sessions: each replica goes on with its own values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops.cross_replica_ops import cross_replica_sum
from ipu_tf.ops.replication_ops import replication_index
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1


def test_a_run_that_fails_leaves_every_replica_its_values() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue("values")
    with tf.Graph().as_default(), tf1.Session() as session, ipus(2):
        limit = tf1.placeholder(tf.float32, [])
        variable = tf1.get_variable("kept", [], initializer=tf1.zeros_initializer(), use_resource=True)

        def step(limit: tf.Tensor) -> Any:
            own = variable.assign_add(tf.cast(replication_index(), tf.float32) + 1.0)
            with tf.control_dependencies([tf.debugging.assert_less(own, limit)]):
                return queue.enqueue(tf.identity(own))

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            program = ipu.ipu_compiler.compile(lambda limit: ipu.loops.repeat(2, lambda: step(limit)), [limit])
        dequeued = queue.dequeue()
        session.run(variable.initializer)
        session.run(program, {limit: 1e3})
        np.testing.assert_array_equal(session.run(dequeued), [[1, 2], [2, 4]])
        for _ in range(2):
            failed = False
            try:
                session.run(program, {limit: 5.5})
            except tf.errors.InvalidArgumentError:
                failed = True
            assert failed
            session.run(dequeued)
        assert session.run(variable) == 2.0
        session.run(program, {limit: 1e3})
        np.testing.assert_array_equal(session.run(dequeued), [[3, 6], [4, 8]])


def counted(initial: Any, dtype: Any) -> Any:
    """What all replicas' values of a variable sum up to, after each adds its index to the last of them."""
    variable = tf1.get_variable("kept", initializer=tf.constant(initial, dtype), use_resource=True)

    def program() -> tf.Tensor:
        own = variable.assign_add(tf.cast([0, replication_index()], dtype))
        return cross_replica_sum(tf.cast(own, tf.float32))

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        return ipu.ipu_compiler.compile(program)[0][1]


def test_replicas_start_from_the_values_of_their_own_session() -> None:
    """Replica 0 leaves the variable its initial value."""
    with tf.Graph().as_default(), ipus(2):
        total = counted([0.0, 0.0], tf.float32)
        initialise, found = tf1.global_variables_initializer(), []
        for _ in range(2):
            with tf1.Session() as session:
                session.run(initialise)
                found.append([float(session.run(total)) for _ in range(3)])
    assert found == [[1.0, 2.0, 3.0]] * 2


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.complex64], ids=lambda dtype: dtype.name)
def test_a_variable_with_a_nan_is_not_taken_for_an_assigned_one(dtype: tf.DType) -> None:
    with tf.Graph().as_default(), tf1.Session() as session, ipus(2):
        total = counted([np.nan, 0.0], dtype)
        session.run(tf1.global_variables_initializer())
        assert [float(session.run(total)) for _ in range(3)] == [1.0, 2.0, 3.0]
