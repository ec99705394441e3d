"""Checks of operands' values raise as TensorFlow's CPU kernels do, and cost nothing where they are known to hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.lowering.programs import step_program
from ipu_tf.lowering.programs.build import build_program
from ipu_tf.lowering.programs.program_file import Parameter, program_contents
from ipu_tf.lowering.programs.program_target import Target
from ipu_tf.lowering.stablehlo.check_markers import checks_of
from ipu_tf.lowering.stablehlo.errors import LoweringError
from ipu_tf.lowering.tensorflow import tf_private
from ipu_tf.lowering.tensorflow.trace import lower
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1
Function = Callable[..., Any]
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def integers(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def read(x: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    return tf.TensorArray(tf.float32, 3).unstack(x).read(index)


def write(x: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    return tf.TensorArray(tf.float32, 3, element_shape=[4]).unstack(x).write(index, -x[0]).stack()


def in_a_loop(x: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
    rows, total = tf.TensorArray(tf.float32, 3).unstack(x), tf.zeros([4])
    for i in tf.range(2):
        total += rows.read(first + i)
    return total


def in_a_branch(x: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    return tf.cond(tf.reduce_sum(x) > 0, lambda: write(x, index), lambda: x)


def gradient(x: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = read(x, index) ** 2
    return tape.gradient(y, x)


def stateless(x: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    return tf.random.stateless_uniform([3], [1, 2], 3, limit, dtype=limit.dtype)


#: A function of `X` and of an operand, an operand that it takes, and operands that it raises for.
CHECKED: dict[str, tuple[Function, Any, list[Any]]] = {
    "TensorArray.read": (read, integers(2)[0], [*integers(3, -1, 2**31 - 1)]),
    "TensorArray.write": (write, integers(0)[0], [*integers(3, -1)]),
    "TensorArray.gather": (
        lambda x, i: tf.TensorArray(tf.float32, 3).unstack(x).gather(i),
        integers(0, 2, 0),
        [integers(0, 5, -1)],
    ),
    "TensorArray in a loop": (in_a_loop, integers(1)[0], [*integers(2)]),
    "TensorArray in a branch": (in_a_branch, integers(1)[0], [*integers(4)]),
    "TensorArray and its gradient": (gradient, integers(1)[0], [*integers(3)]),
    "reverse_sequence": (
        lambda x, n: tf.reverse_sequence(x, n, seq_axis=1),
        integers(0, 4, 2),
        [integers(1, 9, 2), integers(1, 2, -1), integers(5, -1, 2)],
    ),
    "reverse_sequence, int64, other axes": (
        lambda x, n: tf.reverse_sequence(x, n, seq_axis=0, batch_axis=1),
        np.array([0, 1, 2, 3], np.int64),
        [np.array([0, 4, 0, 0], np.int64)],
    ),
    "invert_permutation": (
        lambda x, p: tf.math.invert_permutation(p),
        integers(2, 0, 1),
        [integers(0, 2, 3), integers(0, 2, -1), integers(0, 2, 2), integers(1, 1, 0), integers(1, 0, 0)],
    ),
    "random.uniform": (
        lambda x, limit: tf.random.uniform([3], 3, limit, dtype=tf.int32),
        integers(4)[0],
        [*integers(3, -2)],
    ),
    "random.uniform, int64": (
        lambda x, limit: tf.random.uniform([3], 3, limit, dtype=tf.int64),
        np.int64(4),
        [np.int64(3)],
    ),
    "random.stateless_uniform": (stateless, integers(4)[0], [*integers(3)]),
    "StatelessRandomUniformInt": (
        lambda x, limit: tf.raw_ops.StatelessRandomUniformInt(shape=[3], seed=[1, 2], minval=3, maxval=limit),
        integers(4)[0],
        [*integers(3)],
    ),
}


@pytest.mark.parametrize("name", CHECKED)
def test_values_that_stock_refuses(strategy: Strategy, name: str) -> None:  # noqa: F811
    function, taken, refused = CHECKED[name]
    with device_work() as work:
        mine = strategy.run(tf.function(function), [tf.constant(X), tf.constant(taken)])
    assert work.counts.executions == 1
    np.testing.assert_array_equal(mine, tf.function(function)(tf.constant(X), tf.constant(taken)))
    for value in refused:
        with pytest.raises(tf.errors.InvalidArgumentError) as stock:
            tf.function(function)(tf.constant(X), tf.constant(value))
        with pytest.raises(tf.errors.InvalidArgumentError) as own:
            strategy.run(tf.function(function), [tf.constant(X), tf.constant(value)])
        said, where, *_ = str(own.value.message).splitlines()
        assert said in str(stock.value), value
        assert where.startswith("It failed in `")


@pytest.mark.parametrize("name", CHECKED)
def test_constants_cost_nothing(name: str) -> None:
    function, taken, refused = CHECKED[name]
    assert not checks_left(lambda x: function(x, tf.constant(taken)), X.shape)
    with contextlib.suppress(LoweringError):  # or TensorFlow refuses the constant
        assert checks_left(lambda x: function(x, tf.constant(refused[-1])), X.shape)


def test_the_step_is_named(strategy: Strategy) -> None:  # noqa: F811
    @tf.function
    def program(x: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
        rows, i = tf.TensorArray(tf.float32, 3, element_shape=[4]), 0
        while tf.cast(i, tf.float32) < limit:
            rows = rows.write(i, x[0])
            i += 1
        return rows.stack()

    np.testing.assert_array_equal(strategy.run(program, [X, np.float32(3)]), np.stack([X[0]] * 3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)element 3 in a list with 3.*in step 4 of the loop"):
        strategy.run(program, [X, np.float32(5)])


def test_exported_programs_have_no_such_checks() -> None:
    concrete = tf_private.concrete_function(
        tf.function(read, jit_compile=True), tf.TensorSpec(X.shape), tf.TensorSpec([], tf.int32)
    )
    assert program_contents(lower(concrete), [Parameter("x"), Parameter("index")], Target(), 1)


def lowered(function: Function, shape: tuple[int, ...]) -> Any:
    return lower(tf_private.concrete_function(tf.function(function, jit_compile=True), tf.TensorSpec(shape))).module


def checks_left(function: Function, shape: tuple[int, ...]) -> list[str]:
    """The checks that a program of the function has."""
    module = lowered(function, shape)
    program = build_program(module)
    assert program.keeps_state == bool(program.checks) or "seed" in program.hidden
    return [check.kind for check in program.checks.values()]


def with_gradient(function: Function) -> Function:
    def both(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(function(x) ** 2)
        return tape.gradient(y, x)

    return both


def strided(x: tf.Tensor) -> tf.Tensor:
    rows = tf.TensorArray(tf.float32, 6, element_shape=[4, 5])
    for i in tf.range(3):
        rows = rows.write(2 * i, x[:, i]).write(2 * i + 1, -x[:, i])
    return rows.stack()


def backwards(x: tf.Tensor) -> tf.Tensor:
    rows, total = tf.TensorArray(tf.float32, 3).unstack(tf.transpose(x, [1, 0, 2])), tf.zeros([4, 5])
    for i in tf.range(2, -1, -1):
        total += rows.read(i)
    return total


def nested(x: tf.Tensor) -> tf.Tensor:
    rows = tf.TensorArray(tf.float32, 6, element_shape=[4, 5])
    for i in tf.range(2):
        for j in tf.range(3):
            rows = rows.write(i * 3 + j, x[:, j])
    return rows.stack()


def with_lengths(x: tf.Tensor) -> tf.Tensor:
    steps = tf.TensorArray(tf.float32, 3).unstack(tf.transpose(x, [1, 0, 2]))
    last = tf.minimum(tf.cast(tf.reduce_sum(x), tf.int32), 3)

    def step(time: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return time + 1, tf.tanh(state + steps.read(time))

    return tf.while_loop(lambda time, state: time < last, step, (0, tf.zeros([4, 5])), maximum_iterations=9)[1]


#: Functions of `float32[4, 3, 5]` whose indices are in range, whatever their data is.
IN_RANGE: dict[str, Function] = {
    "strided": strided,
    "backwards": backwards,
    "nested": nested,
    "steps limited by data": with_lengths,
    "map_fn": lambda x: tf.map_fn(lambda row: row * 2, x),
    "scan": lambda x: tf.scan(lambda total, row: total + row, x),
    "scan, reverse": lambda x: tf.scan(lambda total, row: total + row, x, reverse=True),
    "foldr": lambda x: tf.foldr(lambda total, row: total + row, x),
    "map_fn of scan": lambda x: tf.map_fn(lambda rows: tf.scan(lambda total, row: total * row, rows)[-1], x),
}


@pytest.mark.parametrize("name", IN_RANGE)
def test_counters_need_no_check(name: str) -> None:
    shape = (4, 3, 5)
    assert not checks_left(IN_RANGE[name], shape)
    assert not checks_left(with_gradient(IN_RANGE[name]), shape)
    assert checks_of(lowered(IN_RANGE[name], shape))  # without the ranges of the counters there is one


def test_indices_that_depend_on_data_are_checked() -> None:
    def one_too_many(x: tf.Tensor) -> tf.Tensor:
        rows = tf.TensorArray(tf.float32, 3, element_shape=[4, 5]).unstack(tf.transpose(x, [1, 0, 2]))
        for i in tf.range(4):
            rows = rows.write(i, x[:, 0])
        return rows.stack()

    def by_data(x: tf.Tensor) -> tf.Tensor:
        return tf.TensorArray(tf.float32, 4).unstack(x).read(tf.cast(x[0, 0, 0], tf.int32))

    assert checks_left(one_too_many, (4, 3, 5)) == ["TensorListSetItem"]
    assert checks_left(by_data, (4, 3, 5)) == ["TensorListGetItem"]


RECURRENT: dict[str, Callable[[], list[Any]]] = {
    "LSTM": lambda: [keras.layers.LSTM(4)],
    "GRU, masked": lambda: [keras.layers.Masking(), keras.layers.GRU(4, return_sequences=True), keras.layers.GRU(4)],
    "Bidirectional": lambda: [keras.layers.Bidirectional(keras.layers.LSTM(4))],
    "two cells": lambda: [keras.layers.RNN([keras.layers.LSTMCell(3), keras.layers.LSTMCell(3)])],
    "ConvLSTM1D": lambda: [keras.layers.Reshape((5, 3, 1)), keras.layers.ConvLSTM1D(2, 2), keras.layers.Flatten()],
}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers_are_trained_without_checks(
    strategy: Strategy,  # noqa: F811
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[Any] = []

    def noted(module: Any) -> Any:
        found.append(checks_of(module))
        return found[-1]

    monkeypatch.setattr(step_program, "checks_of", noted)
    x = np.random.default_rng(0).normal(size=(8, 5, 3)).astype(np.float32)
    with strategy.scope():
        model = keras.Sequential([keras.Input((5, 3)), *RECURRENT[name](), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(x, x[:, 0, :1], batch_size=4, verbose=0)
    assert found == [{}]
