"""Programs in TF1 graphs, run by sessions: against the same graph on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
compile = ipu.ipu_compiler.compile  # noqa: A001 - its name
Strategy = ipu.ipu_strategy.IPUStrategyV1


def on_ipu(computation: Callable[..., Any], inputs: Any = None) -> Any:
    """A computation compiled for the one IPU."""
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        return compile(computation, inputs)


def test_placeholders(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), tf1.Session() as session, device_work() as work:
        a, b = tf1.placeholder(tf.float32, [2]), tf1.placeholder(tf.float32, [2])
        result = on_ipu(lambda a, b: (a + b, a * b), [a, b])
        total, product = session.run(result, {a: [1, 2], b: [3, 5]})
    np.testing.assert_array_equal([total, product], [[4, 7], [3, 10]])
    assert work.counts.executions == 1


def test_one_value_comes_as_a_list_and_operations_as_an_operation(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default():
        assert isinstance(on_ipu(lambda: tf.constant(1.0)), list)
        assert isinstance(on_ipu(lambda: tf.no_op()), tf.Operation)
        assert isinstance(on_ipu(lambda: None), tf.Operation)


@pytest.mark.parametrize("kind", ["loop", "branch", "function"])
def test_what_a_program_only_reads_is_not_written_back(strategy: Strategy, kind: str) -> None:  # noqa: F811
    """What another part of the same session run assigns meanwhile stays, and what the program assigns is kept."""

    def program(v: tf.Variable, changed: tf.Variable) -> Any:
        changed.assign_add(1.0)
        if kind == "loop":
            return ipu.loops.repeat(3, lambda x: x + v, [0.0])
        if kind == "branch":
            return tf.cond(changed > 0.0, lambda: v * 3.0, lambda: v * 0.0)
        return tf.function(lambda: v * 3.0)()

    with tf.Graph().as_default() as graph, tf1.Session() as session, device_work() as work:
        v = tf1.get_variable("v", initializer=2.0, use_resource=True)
        changed = tf1.get_variable("changed", initializer=0.0, use_resource=True)
        before = {operation.name for operation in graph.get_operations()}
        [result] = on_ipu(lambda: program(v, changed))
        made = [each for each in graph.get_operations() if each.name not in before]
        session.run(tf1.global_variables_initializer())
        assert session.run(result) == 6.0
        assert session.run([v, changed]) == [2.0, 1.0]
    assert [each.inputs[0].op.name for each in made if each.type == "AssignVariableOp"] == ["changed"]
    assert work.counts.executions == 1


def test_a_function_with_a_gradient_of_its_own_in_two_programs(strategy: Strategy) -> None:  # noqa: F811
    """The first does not differentiate it; TensorFlow takes the function's trace again in the second."""

    @tf.custom_gradient
    def doubled(x: tf.Tensor) -> Any:
        return 2.0 * x, lambda gradient: 5.0 * gradient

    function = tf.function(lambda x: doubled(x) + 1.0)
    with tf.Graph().as_default(), tf1.Session() as session, device_work() as work:
        x = tf1.placeholder(tf.float32, [2])
        [plain] = on_ipu(function, [x])
        [gradient] = on_ipu(lambda x: tf.gradients(function(x), x), [x])
        assert session.run(plain, {x: [1.0, 2.0]}).tolist() == [3.0, 5.0]
        assert session.run(gradient, {x: [1.0, 2.0]}).tolist() == [5.0, 5.0]
    assert work.counts.executions == 2


OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: tf1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: tf1.train.AdamOptimizer(0.1),
    "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_equals_the_cpu(strategy: Strategy, name: str) -> None:  # noqa: F811
    def losses(place: Callable[..., Any]) -> tuple[list[float], Any]:
        with tf.Graph().as_default(), tf1.Session() as session:
            x = tf1.placeholder(tf.float32, [8, 3])

            def step(x: tf.Tensor) -> Any:
                with tf1.variable_scope("model", use_resource=True, reuse=tf1.AUTO_REUSE):
                    w = tf1.get_variable("w", [3, 1], initializer=tf1.ones_initializer())
                loss = tf.reduce_mean(tf.square(x @ w - 1.0))
                return loss, OPTIMIZERS[name]().minimize(loss)

            fetched = place(step, [x])
            session.run(tf1.global_variables_initializer())
            rng = np.random.default_rng(0)
            values = [session.run(fetched, {x: rng.normal(size=(8, 3))})[0] for _ in range(6)]
            return values, session.run(tf1.trainable_variables())

    with device_work() as work:
        mine, my_weights = losses(on_ipu)
    stock, stock_weights = losses(lambda step, inputs: list(step(*inputs)))
    assert work.counts.executions == 6
    np.testing.assert_allclose(mine, stock, rtol=1e-5)
    np.testing.assert_allclose(my_weights, stock_weights, rtol=1e-5)


def test_a_loop_with_feeds(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), tf1.Session() as session:
        dataset = tf.data.Dataset.from_tensor_slices(np.arange(10, dtype=np.float32)).repeat()
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def body(total: tf.Tensor, x: tf.Tensor) -> Any:
            return total + x, outfeed.enqueue({"x": x})

        run = on_ipu(lambda: ipu.loops.repeat(4, body, [0.0], infeed))
        rows = outfeed.dequeue()
        session.run(infeed.initializer)
        assert session.run(run) == [6.0]
        assert session.run(run) == [22.0]
        np.testing.assert_array_equal(session.run(rows)["x"], np.arange(8))
        np.testing.assert_array_equal(session.run(rows)["x"], [])
        session.run(infeed.deleter)


def test_a_dataset_that_depends_on_a_placeholder(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), tf1.Session() as session:
        values = tf1.placeholder(tf.float32, [3])
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(values))
        run = on_ipu(lambda: ipu.loops.repeat(3, lambda t, x: t + x, [0.0], infeed))
        session.run(infeed.initializer, {values: [1, 2, 3]})
        assert session.run(run) == [6.0]


def test_initializer_once(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default():
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(1.0))
        assert isinstance(infeed.initializer, tf.Operation)
        with pytest.raises(ValueError, match="can only be accessed once"):
            _ = infeed.initializer


def test_variables_made_outside_and_control_flow_inside(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), tf1.Session() as session:
        with tf1.variable_scope("", use_resource=True):
            count = tf1.get_variable("count", initializer=3)

        def program(x: tf.Tensor) -> Any:
            doubled = tf.cond(x > 0, lambda: x * 2, lambda: x - 1)
            return doubled, count.assign_add(1).op

        x = tf1.placeholder(tf.float32, [])
        result = on_ipu(program, [x])
        session.run(tf1.global_variables_initializer())
        assert session.run(result, {x: 2.0}) == [4.0]
        assert session.run(result, {x: -2.0}) == [-3.0]
        assert session.run(count) == 5


def test_not_on_an_ipu() -> None:
    with tf.Graph().as_default(), pytest.raises(Exception, match="was not placed on an IPU device"):
        compile(lambda: tf.constant(1.0))


def test_operations_before_tensors() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Tensors followed by"):
        on_ipu(lambda: (tf.no_op(), tf.constant(1.0)))


def test_nothing_configured() -> None:
    ipu.config.reset_ipu_configuration()
    with tf.Graph().as_default(), tf1.Session() as session:
        result = on_ipu(lambda: tf.constant(1.0) + 1.0)
        with pytest.raises(tf.errors.FailedPreconditionError, match="No device target has been configured"):
            session.run(result)


def test_inside_a_tf_function(strategy: Strategy) -> None:  # noqa: F811
    total = tf.Variable(1.0)

    @tf.function
    def function(x: tf.Tensor) -> Any:
        def program(x: tf.Tensor) -> tf.Tensor:
            return total.assign_add(x) * 2.0

        return on_ipu(program, [x])

    with device_work() as work:
        assert [float(v) for v in function(tf.constant(2.0))] == [6.0]
        assert [float(v) for v in function(tf.constant(2.0))] == [10.0]
    assert work.counts.executions == 2
    assert float(total) == 5.0


def test_nested_results_keep_their_structure() -> None:
    v1 = tf.compat.v1
    with ipus(1), tf.Graph().as_default(), v1.Session() as session:

        def computation(x: tf.Tensor) -> Any:
            return [x + 1.0, [(x * 2.0, None), {"int": tf.cast(x, tf.int32)}]]

        x = v1.placeholder(tf.float32, [])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            result = ipu.ipu_compiler.compile(computation, [x])
        first, [(double, nothing), named] = result
        assert nothing is None
        assert session.run([first, double, named["int"]], {x: 3.5}) == [4.5, 7.0, 3]
