"""Variables that programs only read are on the device without a copy; nothing that follows changes either's value."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import tensorflow as tf

from ipu_tf.device.memory.residency import RESIDENCY, Residency
from ipu_tf.lowering.tensorflow.variables import TensorFlowVariable, host_variable
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

SIZE = 1 << 16


def address(variable: tf.Variable) -> int:
    """Where TensorFlow has a variable's value."""
    ((view, _),) = TensorFlowVariable.snapshots([host_variable(variable)])
    return int(view.ctypes.data)


def read(residency: Residency, variable: tf.Variable) -> jax.Array:
    (buffer,) = residency.acquire_all([host_variable(variable)], only_read=[True])
    return buffer


def to_change(residency: Residency, variable: tf.Variable) -> jax.Array:
    (buffer,) = residency.acquire_all([host_variable(variable)], only_read=[False])
    return buffer


def test_a_variable_that_is_only_read_is_not_copied() -> None:
    residency, variable = Residency(), tf.Variable(tf.ones(SIZE))
    buffer = read(residency, variable)
    assert buffer.unsafe_buffer_pointer() == address(variable)
    assert read(residency, variable) is buffer


def test_one_that_is_changed_has_memory_of_its_own() -> None:
    residency, variable = Residency(), tf.Variable(tf.ones(SIZE))
    shared = read(residency, variable)
    own = to_change(residency, variable)
    assert own.unsafe_buffer_pointer() != address(variable)
    residency.commit([host_variable(variable)], [jax.jit(lambda x: x * 2, donate_argnums=0)(own)])
    assert (variable.numpy() == 1).all() and (np.asarray(shared) == 1).all()
    doubled = read(residency, variable)
    assert (np.asarray(doubled) == 2).all() and to_change(residency, variable) is doubled
    residency.flush()
    assert (variable.numpy() == 2).all()


WRITES: dict[str, Callable[[tf.Variable], Any]] = {
    "assign": lambda variable: variable.assign(tf.fill([SIZE], 5.0)),
    "assign_add": lambda variable: variable.assign_add(tf.fill([SIZE], 4.0)),
    "slice": lambda variable: variable[:].assign(tf.fill([SIZE], 5.0)),
    "scatter": lambda variable: variable.scatter_nd_update([[place] for place in range(SIZE)], tf.fill([SIZE], 5.0)),
}


@pytest.mark.parametrize("write", WRITES)
def test_what_the_host_writes_is_in_other_memory(write: str) -> None:
    residency, variable = Residency(), tf.Variable(tf.ones(SIZE))
    shared = read(residency, variable)
    WRITES[write](variable)
    assert (np.asarray(shared) == 1).all()
    assert (np.asarray(read(residency, variable)) == 5).all()


@pytest.mark.parametrize("kind", ["scatter_update", "scatter_nd_update", "sparse optimizer"])
def test_programs_change_what_the_host_has_scattered_to(strategy: Any, kind: str) -> None:
    variable = tf.Variable(tf.zeros([4, 2]))

    @tf.function
    def grow() -> None:
        variable.assign_add(tf.ones([4, 2]))

    def scatter() -> None:
        row = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([4, 2]))
        if kind == "scatter_update":
            variable.scatter_update(row)
        elif kind == "scatter_nd_update":
            variable.scatter_nd_update([[0]], tf.ones([1, 2]))
        else:
            variable.assign(tf.zeros([4, 2]))
            tf.compat.v1.train.GradientDescentOptimizer(-1.0).apply_gradients([(row, variable)])

    for _ in range(2):
        scatter()
        before = variable.numpy()
        with device_work() as work:
            for _ in range(3):
                strategy.run(grow)
        assert work.counts.executions == 3 and work.counts.uploads == 1
        np.testing.assert_array_equal(variable.numpy(), before + 3)


def test_the_memory_lives_as_long_as_the_device_uses_it() -> None:
    residency, variable = Residency(), tf.Variable(tf.ones(SIZE))
    shared = read(residency, variable)
    del variable
    residency.forget()
    gc.collect()
    others = [tf.Variable(tf.fill([SIZE], float(number))) for number in range(8)]
    assert (np.asarray(shared) == 1).all() and len(others) == 8


def test_programs_share_what_they_read_and_copy_what_they_change(strategy: Any) -> None:
    weight, total = tf.Variable(tf.ones(SIZE)), tf.Variable(tf.zeros(SIZE))

    @tf.function
    def add(x: Any) -> Any:
        total.assign_add(weight * x)
        return tf.reduce_sum(total)

    @tf.function
    def grow() -> None:
        weight.assign_add(total)

    with device_work() as work:
        found = [float(strategy.run(add, [tf.constant(1.0)])) for _ in range(2)]
    assert found == [SIZE, 2 * SIZE] and work.counts.uploads == 2
    assert pointer(weight) == address(weight) and pointer(total) != address(total)
    strategy.run(grow)
    assert pointer(weight) != address(weight) and (weight.numpy() == 3).all() and (total.numpy() == 2).all()
    assert float(strategy.run(add, [tf.constant(1.0)])) == 5 * SIZE


def pointer(variable: tf.Variable) -> int:
    """Where the device has a variable's value."""
    resident = RESIDENCY._residents[id(host_variable(variable))]  # noqa: SLF001 - where it really is
    return int(resident.buffer.unsafe_buffer_pointer())
