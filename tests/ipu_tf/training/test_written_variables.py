"""Variables that a program only writes, which TensorFlow does not note: against the same function on the CPU."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.lowering.tensorflow import tf_values
from ipu_tf.lowering.tensorflow.variables import host_variable
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1

WRITES: dict[str, Callable[[tf.Variable], Any]] = {
    "assign": lambda v: v.assign([7.0, 8.0], read_value=False),
    "assign_add": lambda v: v.assign_add([1.0, 2.0], read_value=False),
    "assign_sub": lambda v: v.assign_sub([1.0, 2.0], read_value=False),
    "by handle": lambda v: tf.raw_ops.AssignAddVariableOp(resource=v.handle, value=[1.0, 3.0]),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_alone(strategy: Strategy, name: str) -> None:  # noqa: F811
    variables = [tf.Variable([1.0, 5.0]) for _ in range(2)]

    def function(variable: tf.Variable) -> Any:
        return tf.function(lambda: WRITES[name](variable) and None, autograph=False)

    with device_work() as work:
        for _ in range(3):
            strategy.run(function(variables[0]))
            function(variables[1])()
            np.testing.assert_array_equal(variables[0].numpy(), variables[1].numpy())
    assert work.counts.executions == 3


@pytest.mark.parametrize("name", ["MomentumOptimizer", "AdamOptimizer"])
def test_slots_of_an_optimizer(strategy: Strategy, name: str) -> None:  # noqa: F811
    def trained(run: Callable[[Any], Any]) -> np.ndarray:
        weights = tf.Variable([1.0, -2.0])
        optimizer = getattr(tf.compat.v1.train, name)(0.1, *([0.9] if name.startswith("M") else []))

        @tf.function(autograph=False)
        def step() -> None:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights * weights)
            optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])

        for _ in range(4):
            run(step)
        return np.array(weights.numpy())

    with device_work() as work:
        ours = trained(strategy.run)
    assert work.counts.executions == 4
    np.testing.assert_allclose(ours, trained(lambda step: step()), rtol=1e-6)


def test_a_program_that_writes_and_one_that_reads_share_the_variable(strategy: Strategy) -> None:  # noqa: F811
    total = tf.Variable(0.0)
    write = tf.function(lambda: total.assign_add(1.0, read_value=False) and None, autograph=False)
    double = tf.function(lambda: total.assign(total * 2))
    with device_work() as work:
        for _ in range(2):
            strategy.run(write)
            strategy.run(double)
    assert total.numpy() == 6.0
    assert work.counts.uploads == 1


def test_one_host_variable_whichever_object_is_asked_and_it_dies_with_the_variable() -> None:
    variable = tf.Variable(1.0)
    other = tf_values.variable_of(variable.handle)
    assert other is not None and host_variable(other) is host_variable(variable)
    host = weakref.ref(host_variable(variable))
    del variable, other
    # Python needs two passes to free a cycle through an eager tensor.
    for _ in range(2):
        gc.collect()
    assert host() is None


def test_other_resources_are_no_variables() -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([2])), 0)
    assert tf_values.variable_of(table.resource_handle) is None
    assert tf_values.variable_of(iter(tf.data.Dataset.range(3))._iterator_resource) is None
