"""Queues between programs with different numbers of replicas, queues in use, lines and counters of loops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.infeed import Infeed
from ipu_tf.lowering.stablehlo.module import custom_call_target, walk
from ipu_tf.lowering.tensorflow import markers, tf_values
from ipu_tf.lowering.tensorflow.trace import lower
from ipu_tf.ops.internal_ops import fifo, get_current_iteration_counter
from ipu_tf.optimizers import cross_replica_optimizer, gradient_accumulation_optimizer, sharded_optimizer
from ipu_tf.scopes import ipu_scope, ipu_shard
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
Strategy = ipu.ipu_strategy.IPUStrategyV1


def compiled(computation: Callable[..., Any], inputs: Any = None) -> Any:
    with ipu_scope("/device:IPU:0"):
        return ipu.ipu_compiler.compile(computation, inputs)


def on_shards(count: int, queue: Any, outfeed: Any = None) -> Any:
    """A program that takes two elements, on so many shards."""

    def body(total: tf.Tensor, x: tf.Tensor) -> Any:
        with ipu_shard(count - 1):
            total = total + x
            return (total, outfeed.enqueue(total)) if outfeed else total

    return compiled(lambda: ipu.loops.repeat(2, body, [0.0], queue))


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.range(1000).map(lambda i: tf.cast(i, tf.float32))


@pytest.fixture
def session() -> Iterator[Any]:
    with tf.Graph().as_default(), tf1.Session() as session:
        yield session


def test_an_infeed_of_two_numbers_of_replicas(session: Any) -> None:
    with ipus(4):
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers())
        session.run(queue.initializer)
        twofold, fourfold = on_shards(2, queue), on_shards(1, queue)
        session.run(twofold)
        text = (
            rf"Iterator for feed {queue.feed_name} has already been setup with a replication factor of 2 when it "
            r"should have 4.Infeeds can not be shared across graphs with different replication factors. Please create "
            "a new InfeedQueue."
        )
        with pytest.raises(tf.errors.FailedPreconditionError, match=text):
            session.run(fourfold)
        session.run(twofold)


def test_an_outfeed_of_two_numbers_of_replicas(session: Any) -> None:
    with ipus(4):
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        first, second = (ipu.ipu_infeed_queue.IPUInfeedQueue(numbers()) for _ in range(2))
        session.run([first.initializer, second.initializer])
        session.run(on_shards(2, first, outfeed))
        with tf.Graph().as_default(), tf1.Session() as other:
            third = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers())
            other.run(third.initializer)
            fourfold = on_shards(1, third, outfeed)
            with pytest.raises(
                tf.errors.FailedPreconditionError,
                match="already exists but with a different tensor shape or replication factor. Consider changing",
            ):
                other.run(fourfold)


def test_queues_that_are_made_for_a_number_of_replicas() -> None:
    """The number holds under each configuration."""
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue("results", replication_factor=2)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers(), "numbers", replication_factor=2)

    def run(strategy: Any, body: Any) -> None:
        strategy.run(tf.function(lambda: ipu.loops.repeat(1, body, [0.0], infeed)))

    with ipus(2) as strategy:  # noqa: F811
        run(strategy, lambda total, x: (total, outfeed.enqueue(x)))
        assert outfeed.dequeue().shape == (1, 2)
    with ipus(1) as strategy:  # noqa: F811
        text = "replication_factor=2. Received: a program of 1"
        with pytest.raises(tf.errors.FailedPreconditionError, match=text):
            run(strategy, lambda total, x: total + x)
        with pytest.raises(tf.errors.FailedPreconditionError, match=text):
            strategy.run(tf.function(lambda: outfeed.enqueue(1.0) and None))


def test_a_new_configuration_frees_an_outfeed_and_no_rows_have_its_shape() -> None:
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    for count in (2, 1):
        with ipus(count) as strategy:  # noqa: F811
            strategy.run(tf.function(lambda: outfeed.enqueue(1.0) and None))
            rows, none = outfeed.dequeue(), outfeed.dequeue()
            assert rows.shape == ((1, 2) if count == 2 else (1,))
            np.testing.assert_array_equal(tf.concat([rows, none], axis=0), rows)


def test_an_infeed_in_use_is_not_deleted(strategy: Strategy) -> None:  # noqa: F811
    waiting, go_on = threading.Event(), threading.Event()

    def elements() -> Iterator[float]:
        yield 1.0
        waiting.set()
        assert go_on.wait(30)
        yield 2.0

    with strategy.scope():
        dataset = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([], tf.float32))
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset)

    @tf.function
    def program() -> Any:
        return ipu.loops.repeat(2, lambda total, x: total + x, [0.0], queue)

    found: list[Any] = []
    runner = threading.Thread(target=lambda: found.append(strategy.run(program)))
    runner.start()
    assert waiting.wait(30)
    # TensorFlow may compute elements ahead: the program runs once it has taken one.
    deadline = time.monotonic() + 30
    while not queues.infeed(queue.feed_name).taken:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        with pytest.raises(
            tf.errors.FailedPreconditionError, match=f"Cannot delete infeed with id='{queue.feed_name}' while in use"
        ):
            _ = queue.deleter
    finally:
        go_on.set()
        runner.join(30)
    np.testing.assert_array_equal(np.ravel(found[0]), [3.0])
    _ = queue.deleter


def test_use_ends_with_the_program_that_fails() -> None:
    queues.add_infeed(Infeed("mine", (), lambda: iter(())))
    with pytest.raises(KeyError), queues.used(["mine", "unknown"], 1):
        raise KeyError
    assert queues.remove("mine")


def test_markers_that_are_alike_stay_apart() -> None:
    spec = [tf.TensorSpec([], tf.int32)]
    inner = tf.function(lambda: markers.stateful_marker("ipu.iteration", [], spec)[0], autograph=False)

    def program() -> tf.Tensor:
        one, two = (markers.stateful_marker("ipu.iteration", [], spec)[0] for _ in range(2))
        return one + two + inner() + inner()

    with tf_values.eager_mode():
        module = lower(tf.function(program, autograph=False).get_concrete_function()).module
    targets = [custom_call_target(operation) for operation in walk(module.main, module.functions)]
    assert targets.count("ipu.iteration") == 4


@pytest.mark.parametrize(("depth", "count"), [(1, 4), (3, 7), (5, 3)])
def test_a_line_delays(strategy: Strategy, depth: int, count: int) -> None:  # noqa: F811
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    @tf.function
    def program() -> None:
        def body(i: tf.Tensor) -> Any:
            element = tf.stack([i, i * 2.0])
            return i + 1.0, outfeed.enqueue([fifo(element, depth, offload=True), get_current_iteration_counter()])

        ipu.loops.repeat(count, body, [1.0])

    with device_work() as work:
        for _ in range(2):  # each execution begins with an empty line
            strategy.run(program)
            delayed, indices = (elements.numpy() for elements in outfeed.dequeue())
            went_in = np.arange(1.0, count + 1)
            came_out = np.concatenate([np.zeros(depth), went_in])[:count]
            np.testing.assert_array_equal(delayed, np.stack([came_out, came_out * 2], axis=1))
            np.testing.assert_array_equal(indices, np.arange(count))
    assert work.counts.executions == 2
    assert "fifo.offload" in {item.name for item in ipu.emulation.ignored_arguments()}


def test_a_line_in_a_function_that_is_called_twice_is_refused(strategy: Strategy) -> None:  # noqa: F811
    delayed = tf.function(lambda x: fifo(x, 1))

    def body(i: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> list[tf.Tensor]:
        return [i + 1.0, delayed(i), delayed(-i)]

    with pytest.raises(ValueError, match=r"A `fifo` in a `tf\.function` that a program calls more than once"):
        strategy.run(tf.function(lambda: ipu.loops.repeat(3, body, [0.0, 0.0, 0.0])))
    once = tf.function(lambda: ipu.loops.repeat(3, lambda i, a: [i + 1.0, delayed(i)], [0.0, 0.0]))
    assert [float(each) for each in strategy.run(once)] == [3.0, 1.0]


def test_a_line_without_depth() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="`depth` must be a positive integer. Received: 0."):
        fifo(1.0, 0)


def test_the_counter_of_a_pipeline_counts_micro_batches(session: Any) -> None:
    with ipus(2):
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers())
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def program() -> Any:
            return ipu.pipelining_ops.pipeline(
                [lambda x: (x, get_current_iteration_counter(lower_into_pipeline_stage=True)), lambda x, i: (x, i)],
                gradient_accumulation_count=4,
                repeat_count=3,
                infeed_queue=infeed,
                outfeed_queue=outfeed,
            )

        run, elements = compiled(program), outfeed.dequeue()
        session.run(infeed.initializer)
        session.run(run)
        np.testing.assert_array_equal(session.run(elements)[1], np.tile(np.arange(4), 3))


@pytest.mark.parametrize(
    "wrap",
    [
        sharded_optimizer.ShardedOptimizer,
        lambda opt: cross_replica_optimizer.CrossReplicaOptimizer(sharded_optimizer.ShardedOptimizer(opt)),
        lambda opt: sharded_optimizer.ShardedOptimizer(cross_replica_optimizer.CrossReplicaOptimizer(opt)),
    ],
)
def test_accumulation_around_a_sharded_optimizer(session: Any, wrap: Callable[..., Any]) -> None:
    with ipus(1):
        w = tf1.get_variable("w", initializer=1.0, use_resource=True)
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers())

        def body(x: tf.Tensor) -> tf.Operation:
            inner = wrap(tf1.train.GradientDescentOptimizer(0.1))
            return gradient_accumulation_optimizer.GradientAccumulationOptimizer(inner, 3).minimize(w * x)

        run = compiled(lambda: ipu.loops.repeat(6, body, [], queue))
        session.run([queue.initializer, tf1.global_variables_initializer()])
        session.run(run)
        np.testing.assert_allclose(session.run(w), 1.0 - 0.1 * (3 + 12), rtol=1e-6)


def test_a_variable_returned_beside_its_update_has_the_value_before(session: Any) -> None:
    with ipus(1):
        w = tf1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)

        def program() -> Any:
            train = w.assign_add([10.0, 10.0])
            with tf.control_dependencies([train]):
                after = w.read_value()
            return w, after, w.assign_sub([1.0, 1.0]), train.op

        run = compiled(program)
        session.run(tf1.global_variables_initializer())
        for start in (0.0, 9.0):
            before, after, last = session.run(run)
            np.testing.assert_array_equal(before, [1.0 + start, 2.0 + start])
            np.testing.assert_array_equal(after, [11.0 + start, 12.0 + start])
            np.testing.assert_array_equal(last, [10.0 + start, 11.0 + start])


def test_a_variable_made_in_a_program_from_what_the_graph_around_it_has(session: Any) -> None:
    with ipus(1):
        scale = tf.random.stateless_uniform([], [1, 2]) * 0.0 + 2.0

        def program() -> tf.Tensor:
            v = tf1.Variable(tf.fill([2], 3.0) * scale, use_resource=True)
            return v.assign_add([1.0, 2.0])

        [run] = compiled(program)
        session.run(tf1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(run), [7.0, 8.0])


def test_a_device_named_only_inside_a_loop(session: Any) -> None:
    with ipus(1), device_work() as work:

        def body(x: tf.Tensor) -> tf.Tensor:
            with tf.device("/device:IPU:0"):
                return x * 2.0

        [run] = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, body, [1.0]))
        assert session.run(run) == 8.0
    assert work.counts.executions == 1


def test_elements_that_replicas_give_in_a_branch_of_an_inner_loop(session: Any) -> None:
    """JAX takes no callback in a branch under its map: the element is handed on, and counts if any replica gives it."""
    with ipus(2):
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

        def inner(index: tf.Tensor, total: tf.Tensor) -> Any:
            own = tf.cast(ipu.replication_ops.replication_index(), tf.float32) + total
            # Odd steps give none; in step 0 only replica 1 wants to.
            gives = tf.logical_and(tf.equal(index % 2, 0), own > 0.0)
            element = tf.cond(gives, lambda: outfeed.enqueue(own), tf.no_op)
            with tf.control_dependencies([element]):
                return index + 1, total + 1.0

        def outer(total: tf.Tensor) -> Any:
            return tf.while_loop(lambda index, _: index < 4, inner, [0, total])[1]

        program = compiled(lambda: ipu.loops.repeat(2, outer, [0.0]))
        dequeued = outfeed.dequeue()
        with device_work() as did:
            assert session.run(program) == [8.0]
        assert did.counts.executions == 1
        np.testing.assert_array_equal(session.run(dequeued), [[own, own + 1] for own in (0.0, 2.0, 4.0, 6.0)])
