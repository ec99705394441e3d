"""Gradients through results of `strategy.run` and `ipu_compiler.compile`, against plain calls of the same functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

Strategy = ipu.ipu_strategy.IPUStrategyV1
Run = Callable[..., Any]
IPU = "/device:IPU:0"


def by_compile(function: Any, args: tuple[Any, ...] = ()) -> Any:
    with ipu.scopes.ipu_scope(IPU):
        results = ipu.ipu_compiler.compile(function, list(args))
    return results[0] if len(results) == 1 else tuple(results)


def plainly(function: Any, args: tuple[Any, ...] = ()) -> Any:
    return function(*args)


@pytest.fixture(params=["run", "compile"])
def run(request: pytest.FixtureRequest, strategy: Strategy) -> Run:  # noqa: F811
    """A way to run a function on the device."""
    return strategy.run if request.param == "run" else by_compile


def same(calculate: Callable[[Run], Any], run: Run) -> Any:
    """Checks that the gradients of a calculation are those of plain TensorFlow, and returns these."""
    found, stock = calculate(run), calculate(plainly)
    tf.nest.assert_same_structure(found, stock)
    for ours, expected in zip(tf.nest.flatten(found), tf.nest.flatten(stock), strict=True):
        assert (ours is None) == (expected is None)
        if expected is not None:
            np.testing.assert_allclose(tf.convert_to_tensor(ours), tf.convert_to_tensor(expected), rtol=1e-5)
    return found


def test_a_path_beside_the_program(run: Run) -> None:
    square = tf.function(lambda x: x * x)
    x = tf.constant(3.0)

    def calculate(run: Run) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(square, (x,)) + 2.0 * x
        return tape.gradient(y, x)

    with device_work() as work:
        assert float(same(calculate, run)) == 8.0
    assert work.counts.executions == 2


def test_variables_captured_tensors_and_several_results(run: Run) -> None:
    """Also whole numbers among inputs and results, a result that nothing uses, and an input that no result uses."""
    table, scale = tf.Variable([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), tf.Variable(2.0, trainable=False)
    factor, rows, unused = tf.constant([3.0, 5.0]), tf.constant([0, 2, 2]), tf.constant(1.0)

    @tf.function
    def function(rows: tf.Tensor, unused: tf.Tensor) -> Any:
        found = tf.gather(table, rows)
        return tf.reduce_sum(found * factor) ** 2 * scale, rows + 1, tf.reduce_mean(found), unused * 0.0 + found

    def calculate(run: Run) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([factor, scale, unused])
            loss, following, mean, _ = run(function, (rows, unused))
            whole = tf.sin(loss * 1e-3) + tf.cast(tf.reduce_sum(following), tf.float32)
        return [tape.gradient(target, [table, factor, scale, unused]) for target in (whole, mean)]

    same(calculate, run)


def test_loops_branches_and_gradients_of_ones_own(run: Run) -> None:
    @tf.custom_gradient
    def tripled(x: tf.Tensor) -> Any:
        return x, lambda upstream: 3.0 * upstream

    @tf.function
    def function(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(4):
            x = tf.where(x > 1.0, tf.sqrt(x), x * 1.5)
        tf.debugging.assert_positive(x)
        return tripled(tf.cond(tf.reduce_sum(x) > 3.0, lambda: x * x, lambda: -x))

    x = tf.constant([0.3, 2.0, 9.0])

    def calculate(run: Run) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(function, (x,))
        return tape.gradient(y, x, output_gradients=tf.constant([1.0, 2.0, 3.0]))

    same(calculate, run)


def test_gradients_of_gradients(run: Run) -> None:
    weight = tf.Variable(1.5)
    cube = tf.function(lambda x: weight * x**3)
    x = tf.constant(2.0)

    def calculate(run: Run) -> Any:
        with tf.GradientTape(persistent=True) as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = run(cube, (x,))
            slope = inner.gradient(y, x)
        return outer.gradient(slope, [x, weight])

    assert [float(each) for each in same(calculate, run)] == [18.0, 12.0]


def test_variables_have_the_values_of_the_run(run: Run) -> None:
    """Whatever is assigned to them before a gradient is asked for."""
    weight = tf.Variable(2.0)
    square = tf.function(lambda x: weight * weight * x)
    x = tf.constant(5.0)

    def calculate(run: Run) -> Any:
        weight.assign(2.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(square, (x,))
        weight.assign(100.0)
        return tape.gradient(y, [x, weight])

    assert [float(each) for each in same(calculate, run)] == [4.0, 20.0]


def test_a_keras_model(strategy: Strategy) -> None:  # noqa: F811
    """Its recurrent layer was traced without a tape, for the results."""
    layers = [keras.layers.Dense(3, "tanh"), keras.layers.LSTM(2), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4, 2)), *layers])
    function, x = tf.function(lambda x: model(x), autograph=False), tf.random.stateless_normal([5, 4, 2], [1, 2])

    def calculate(run: Run) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_mean(tf.square(run(function, (x,)) - 1.0))
        return tape.gradient(loss, [x, *(weight.value for weight in model.trainable_variables)])

    assert len(same(calculate, strategy.run)) == 1 + 2 + 3 + 2


def test_one_more_program_for_all_gradients_of_a_function(strategy: Strategy) -> None:  # noqa: F811
    square = tf.function(lambda x: x * x)
    slopes = []
    with device_work() as work:
        for value in (1.0, 2.0, 3.0):
            with tf.GradientTape() as tape:
                x = tf.constant(value)
                tape.watch(x)
                y = strategy.run(square, (x,))
            slopes.append(float(tape.gradient(y, x)))
    assert slopes == [2.0, 4.0, 6.0]
    assert (work.counts.executions, work.counts.programs) == (6, 2)


COUNTER = tf.Variable(0.0)


def counted(x: tf.Tensor) -> tf.Tensor:
    COUNTER.assign_add(1.0)
    return x * COUNTER


def fed(x: tf.Tensor) -> tf.Tensor:
    with tf.init_scope():
        data = tf.data.Dataset.range(9).map(lambda i: tf.cast(i, tf.float32))
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data)
    return ipu.loops.repeat(2, lambda y, number: y * number, [x], infeed)


REFUSED = {
    "changes variables": counted,
    "uses infeeds or outfeeds": fed,
    "draws random numbers": lambda x: x * tf.random.uniform([]),
    "calls the host": lambda x: [ipu.internal_ops.print_tensor(x), x * x][1],
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_computed_again_is_refused(strategy: Strategy, why: str) -> None:  # noqa: F811
    function, x = tf.function(REFUSED[why], autograph=False), tf.constant(3.0)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = strategy.run(function, (x,))
        other = 2.0 * x
        stopped = tf.stop_gradient(y) * x
        both = y + other
    assert float(tape.gradient(other, x)) == 2.0
    assert float(tape.gradient(stopped, x)) == float(y)
    with pytest.raises(ValueError, match=f"{why}: its gradient cannot be computed after it. Put the tape into"):
        tape.gradient(both, x)


def test_replicas_are_refused() -> None:
    x = tf.constant(3.0)
    with ipus(2) as strategy, tf.GradientTape() as tape:  # noqa: F811
        tape.watch(x)
        y = strategy.run(tf.function(lambda x: x * x), (x,))
    with pytest.raises(ValueError, match="runs as 2 replicas: its gradient"):
        tape.gradient(y, x)


def test_a_gradient_asked_for_in_a_function(strategy: Strategy) -> None:  # noqa: F811
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = strategy.run(tf.function(lambda x: x * x), (x,))
    with pytest.raises(ValueError, match="Ask for it where the tape was made"):
        tf.function(lambda: tape.gradient(y, x), autograph=False)()


@pytest.mark.parametrize("of", ["input", "variable"])
def test_programs_in_functions_have_no_gradients(run: Run, of: str) -> None:
    """An error, where TensorFlow would take them for zero. What is not asked for is none."""
    weight, square = tf.Variable(3.0), tf.function(lambda x: x * x * weight)

    def gradients(x: tf.Tensor, beside: float) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = run(square, (x,)) * beside + 2.0 * x * weight
        return tape.gradient(y, x if of == "input" else weight)

    x = tf.constant(5.0)
    assert float(tf.function(gradients)(x, 0.0)) == (6.0 if of == "input" else 10.0)
    with pytest.raises(tf.errors.OpError, match="The gradient of the results of a program is asked for in a graph"):
        tf.function(gradients)(x, 1.0)


def test_a_function_with_a_program_under_a_tape(strategy: Strategy) -> None:  # noqa: F811
    """TensorFlow makes the gradients of all its results before a tape asks for one."""
    weight = tf.Variable(3.0)
    inner = tf.function(lambda x: x * weight)
    function = tf.function(lambda x: (strategy.run(inner, (x,)), 2.0 * x * weight))
    with tf.GradientTape(persistent=True) as tape:
        y, other = function(tf.constant(5.0))
    assert (float(y), float(other), float(tape.gradient(other, weight))) == (15.0, 30.0, 10.0)
    with pytest.raises(tf.errors.OpError, match="is asked for in a graph"):
        tape.gradient(y, weight)


def test_a_session_raises_the_error_as_it_is() -> None:
    tf1 = tf.compat.v1
    with ipus(1), tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [])
        with ipu.scopes.ipu_scope(IPU):
            [y] = ipu.ipu_compiler.compile(lambda x: x * x, [x])
        [gradient] = tf.gradients(y, x)
        assert session.run(y, {x: 3.0}) == 9.0
        with pytest.raises(ValueError, match="is asked for in a graph"):
            session.run(gradient, {x: 3.0})
