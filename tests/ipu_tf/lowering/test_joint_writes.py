"""Variables that are written together have their values, and share no memory that a later write would change."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from ipu_tf.device.feeds.staging import aligned_empty
from ipu_tf.device.memory.residency import SMALL, Residency
from ipu_tf.lowering.tensorflow import joint_writes, tf_values
from ipu_tf.lowering.tensorflow.variables import TensorFlowVariable, host_variable

KINDS = [
    *((tf.float32, shape) for shape in [(), (), (1,), (3, 5), (16,), (0, 4), (64, 64), (200, 100), (7,)]),
    *((tf.int64, shape) for shape in [(), (2,), (3,), (1, 1, 1), (5,)]),
    *((tf.bfloat16, (size,)) for size in range(1, 6)),
    *((tf.bool, shape) for shape in [(), (2,)]),
]


#: Prints by how many MiB a process grows when it writes 16 variables of 9 MiB, one after the other.
GROWTH = """
import numpy as np, tensorflow as tf
from ipu_tf.device.memory.malloc_options import keep_freed_memory
from ipu_tf.lowering.tensorflow.joint_writes import write_jointly

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4 / 1024

keep_freed_memory()
value = np.ones(9 << 18, np.float32)
kept = []
for _ in range(16):
    kept += [tf.Variable(tf.zeros_like(value)), tf.zeros(3 << 16)]
before = resident()
for variable in kept[::2]:
    write_jointly([variable], [value])
assert all(variable.numpy().min() == 1 for variable in kept[::2])
print(resident() - before)
"""


def drawn(generator: np.random.Generator) -> list[np.ndarray]:
    """A value of each kind."""
    return [
        np.asarray(generator.integers(0, 2 if dtype == tf.bool else 100, shape)).astype(dtype.as_numpy_dtype)
        for dtype, shape in KINDS
    ]


def assert_values(variables: Sequence[tf.Variable], values: Sequence[np.ndarray]) -> None:
    for variable, value in zip(variables, values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
        assert (variable.dtype.as_numpy_dtype, variable.shape) == (value.dtype, value.shape)


def test_values_are_those_that_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    stock = joint_writes.tf_values.call_without_results

    def counted(function: Any, arguments: Sequence[tf.Tensor]) -> None:
        calls.append(len(arguments) - 1)
        stock(function, arguments)

    monkeypatch.setattr(joint_writes.tf_values, "call_without_results", counted)
    generator = np.random.default_rng(0)
    variables = [tf.Variable(value) for value in drawn(generator)]
    for _ in range(20):
        values = drawn(generator)
        joint_writes.write_jointly(variables, values)
        assert_values(variables, values)
    # Those of float32 but for one of 80,000 bytes, of int64 and of bfloat16; two of bool are too few.
    assert calls == [8, 5, 5] * (20 - 16)


def test_a_write_changes_neither_what_was_read_nor_a_neighbour() -> None:
    variables = [tf.Variable(np.zeros(64, np.float32)) for _ in range(6)]
    for number in range(20):
        joint_writes.write_jointly(variables, [np.full(64, number + place, np.float32) for place in range(6)])
    read = [tf.identity(variable) for variable in variables]
    variables[2].assign_add(tf.ones(64))
    assert [variable.numpy()[0] for variable in variables] == [19, 20, 22, 22, 23, 24]
    joint_writes.write_jointly(variables, [np.full(64, -1, np.float32)] * 6)
    assert [tensor.numpy()[0] for tensor in read] == [19, 20, 21, 22, 23, 24]


@pytest.mark.parametrize(
    "dtype",
    [
        *("float16", "float32", "float64", "bool", "int8", "uint16", "uint32", "int64", "complex64"),
        *(ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn, ml_dtypes.int4, ml_dtypes.uint4),
    ],
)
@pytest.mark.parametrize("aligned", (True, False))
def test_large_values_of_every_dtype_are_copied(dtype: Any, aligned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    block = (lambda value: aligned_empty(value.shape, value.dtype)) if aligned else (lambda value: None)
    monkeypatch.setattr(tf_values, "_aligned_block", block)
    value = np.ones(SMALL + 1, dtype)
    variable = tf.Variable(np.zeros_like(value))
    joint_writes.write_jointly([variable], [value])
    value[:] = 0
    np.testing.assert_array_equal(variable.numpy(), np.ones_like(value))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's; elsewhere nothing is changed")
def test_large_values_take_the_memory_that_variables_have_freed() -> None:
    """Half of the 144 MiB at most are new: 9 to 45, as malloc's blocks happen to lie, and 153 and more otherwise."""
    ran = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert float(ran.stdout) < 72


def test_large_values_are_written_in_portions_and_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device and the host do with a value afterwards, they do with their own."""
    monkeypatch.setattr("ipu_tf.device.memory.residency._PORTION", 1 << 12)
    monkeypatch.setattr("ipu_tf.device.memory.residency.SMALL", 1 << 9)
    sizes = [100, 2000, 30, 900, 900, 5, 1, 20000]
    residency, variables = Residency(), [tf.Variable(np.zeros(size, np.float32)) for size in sizes]
    hosts, double = [host_variable(variable) for variable in variables], jax.jit(lambda x: x * 2, donate_argnums=0)
    written: list[int] = []
    stock = TensorFlowVariable.write_all

    def counted(some: Sequence[Any], values: Sequence[np.ndarray]) -> None:
        written.append(len(some))
        stock(some, values)

    monkeypatch.setattr(TensorFlowVariable, "write_all", staticmethod(counted))
    for place, (host, buffer) in enumerate(zip(hosts, residency.acquire_all(hosts), strict=True)):
        residency.commit([host], [buffer + place + 1])
    residency.flush()
    assert written == [4, 1, 1, 2]
    given = residency.acquire_all(hosts)
    variables[1].assign_add(np.ones(2000, np.float32))
    results = [double(buffer) for buffer in given]
    for place, (variable, result) in enumerate(zip(variables, results, strict=True)):
        np.testing.assert_array_equal(variable.numpy(), np.full(sizes[place], place + 1 + (place == 1)))
        np.testing.assert_array_equal(result, np.full(sizes[place], 2 * (place + 1)))


def test_variables_that_are_written_together_are_not_uploaded_again() -> None:
    residency, variables = Residency(), [tf.Variable(np.zeros(place, np.float32)) for place in range(1, 7)]
    hosts = [host_variable(variable) for variable in variables]
    buffers = residency.acquire_all(hosts)
    for _ in range(20):
        for host, buffer in zip(hosts, buffers, strict=True):
            residency.commit([host], [buffer])
        residency.flush()
        assert all(one is other for one, other in zip(residency.acquire_all(hosts), buffers, strict=True))
    variables[3].assign(np.full(4, 5, np.float32))
    after = residency.acquire_all(hosts)
    assert [one is other for one, other in zip(after, buffers, strict=True)] == [True] * 3 + [False] + [True] * 2
    np.testing.assert_array_equal(after[3], np.full(4, 5, np.float32))
