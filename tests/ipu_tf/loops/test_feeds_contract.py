"""Infeeds, outfeeds, loops and compiled programs: the errors and corner cases that Graphcore's interface promises."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import ipu_tf as ipu
from ipu_tf import ipu_infeed_queue, ipu_outfeed_queue
from ipu_tf.device.feeds import queues
from ipu_tf.test_utils import create_single_increasing_dataset, ipu_session
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

tf1 = tf.compat.v1
Strategy = ipu.ipu_strategy.IPUStrategyV1
Infeed = ipu_infeed_queue.IPUInfeedQueue
Outfeed = ipu_outfeed_queue.IPUOutfeedQueue
Mode = ipu_outfeed_queue.IPUOutfeedMode
SCALARS = create_single_increasing_dataset(5, shape=[])


def on_ipu(computation: Callable[..., Any], inputs: Any = None) -> Any:
    """A computation compiled for the one IPU."""
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        return ipu.ipu_compiler.compile(computation, inputs)


def loop(body: Callable[..., Any], inputs: Any = None, infeed: Infeed | None = None, n: Any = 2) -> Any:
    """A compiled loop."""
    return on_ipu(lambda: ipu.loops.repeat(n, body, inputs, infeed))


BAD_QUEUES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "shape": (
        lambda: Infeed(SCALARS.batch(2)),
        ValueError,
        r"Output shape \(None,\) is not fully defined. If using tf.Dataset.batch, set `drop_remainder=True`.",
    ),
    "nested": (
        lambda: Infeed(tf.data.Dataset.from_tensors((1.0, (2.0, 3.0)))),
        ValueError,
        "Nested list/tuple input shapes are not supported",
    ),
    "depth 0": (
        lambda: Infeed(SCALARS, prefetch_depth=0),
        ValueError,
        "prefetch_depth must be greater than zero, but it is 0",
    ),
    "depth 256": (
        lambda: Infeed(SCALARS, prefetch_depth=256),
        ValueError,
        "prefetch_depth must be less than 256, but it is 256",
    ),
    "infeed ordinal": (
        lambda: Infeed(SCALARS, device_ordinal="0"),
        ValueError,
        "Device ordinal must be an integer",
    ),
    "infeed negative": (lambda: Infeed(SCALARS, device_ordinal=-1), ValueError, "Device ordinal must be >= 0"),
    "get_next": (lambda: Infeed(SCALARS).get_next(), ValueError, r"`get_next\(\)` is now obsolete as the"),
    "int64": (
        lambda: Infeed(tf.data.Dataset.range(2)),
        tf.errors.FailedPreconditionError,
        "Unsupported datatype int64 on index 0 of feed operation",
    ),
    "empty infeed": (
        lambda: Infeed(create_single_increasing_dataset(2, shape=[1, 0])),
        tf.errors.InvalidArgumentError,
        "Detected an input tensor to an infeed queue with a dimension of size 0. Please remove it from the inputs.",
    ),
    "mode": (
        lambda: Outfeed(outfeed_mode="all"),
        ValueError,
        "Expected `outfeed_mode` value to be of `ipu_outfeed_queue.IPUOutfeedMode` type, but is all.",
    ),
    "buffer": (lambda: Outfeed(buffer_depth=0), ValueError, "Outfeed buffer depth cannot be less than 1"),
    "outfeed ordinal": (
        lambda: Outfeed(device_ordinal=1.0),
        ValueError,
        "Device ordinal must be an integer",
    ),
    "outfeed negative": (lambda: Outfeed(device_ordinal=-1), ValueError, "Device ordinal must be >= 0"),
    "iterate last": (
        lambda: iter(Outfeed(Mode.LAST)),
        RuntimeError,
        "IPUOutfeedQueue can only be iterated over if the `outfeed_mode` is set to 'IPUOutfeedMode.ALL'.",
    ),
    "outfeed deleted twice": (
        lambda: [outfeed.deleter for outfeed in [Outfeed()] * 2],
        tf.errors.NotFoundError,
        "does not exist",
    ),
    "eager enqueue": (lambda: Outfeed().enqueue(1.0), RuntimeError, "enqueued by a program on the device"),
    "iterator of nothing": (
        lambda: ipu_infeed_queue.IPUIterator(),
        ValueError,
        "Either `dataset` or both `infeed_spec` and `element_spec` need to be provided.",
    ),
    "eager next": (
        lambda: next(ipu_infeed_queue.IPUIterator(SCALARS)),
        RuntimeError,
        "Accessing dataset elements can not be accessed in eager mode when inside 'IPUStrategy'.",
    ),
    "optional": (
        lambda: ipu_infeed_queue.IPUIterator(SCALARS).get_next_as_optional(),
        NotImplementedError,
        r"IPU Dataset iterator does not support get_next_as_optional\(\).",
    ),
    "saving": (
        lambda: ipu_infeed_queue.IPUIterator(SCALARS)._serialize_to_tensors(),
        NotImplementedError,
        "IPU Dataset iterator is not currently saveable.",
    ),
    "unknown name": (
        lambda: ipu_infeed_queue.IPUNothing,
        AttributeError,
        "module 'ipu_tf.ipu_infeed_queue' has no attribute 'IPUNothing'",
    ),
}


@pytest.mark.parametrize("case", BAD_QUEUES)
def test_errors_of_queues(case: str) -> None:
    make, kind, text = BAD_QUEUES[case]
    with pytest.raises(kind, match=text):
        make()


def plain(x: tf.Tensor) -> tf.Tensor:
    """A body or condition of one argument."""
    return x


def add(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """A body of two arguments."""
    return x + y


BAD_LOOPS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "body": (
        lambda: ipu.loops.repeat(1, add, [1.0]),
        TypeError,
        r"Supplied loop body function cannot be called with the specified inputs. You specified 1 inputs: \[.*\], but "
        "the loop body needs exactly 2 arguments.",
    ),
    "body with infeed": (
        lambda: ipu.loops.repeat(1, plain, [1.0], Infeed(SCALARS)),
        TypeError,
        r"You specified 1 inputs: \[.*\] and 1 additional inputs from infeed, but the computation needs exactly 1 arg",
    ),
    "condition": (
        lambda: ipu.loops.while_loop(lambda: True, plain, [1.0]),
        TypeError,
        "Supplied loop condition function cannot be called.*but the loop condition needs exactly 0 arguments.$",
    ),
    "condition with infeed": (
        lambda: ipu.loops.while_loop(add, add, [1.0], Infeed(SCALARS)),
        TypeError,
        r"but the loop condition needs exactly 2 arguments. Note that infeed is not passed to the loop condition.",
    ),
    "dtype": (
        lambda: tf.function(lambda: ipu.loops.repeat(1, lambda x: tf.cast(x, tf.int32), [1.0]))(),
        TypeError,
        "Mismatch between input types and output types for loop body: .*float32.* vs .*int32.*",
    ),
    "order": (
        lambda: tf.function(lambda: ipu.loops.repeat(1, lambda x: (tf.raw_ops.NoOp(), x), [1.0]), autograph=False)(),
        ValueError,
        "IPU loop body must return zero or more Tensor values followed by zero or more Operations.",
    ),
}


@pytest.mark.parametrize("case", BAD_LOOPS)
def test_errors_of_loops(case: str) -> None:
    make, kind, text = BAD_LOOPS[case]
    with pytest.raises(kind, match=text):
        make()


def test_graph_errors_of_queues(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), ipu_session() as session:
        infeed, outfeed = Infeed(create_single_increasing_dataset(5, shape=[])), Outfeed()
        program = loop(lambda total, x: (total + x, outfeed.enqueue(total)), [0.0], infeed)
        with pytest.raises(tf.errors.FailedPreconditionError, match="Did you initialize the infeed_queue 'infeed_"):
            session.run(program)
        with pytest.raises(tf.errors.NotFoundError, match="Make sure that you have run the initializer for this"):
            session.run(infeed.deleter)
        session.run(infeed.initializer)
        with pytest.raises(ValueError, match="`initializer` function can only be accessed once."):
            _ = infeed.initializer
        with pytest.raises(RuntimeError, match="IPUOutfeedQueue can only be iterated over in eager mode."):
            iter(outfeed)
        with pytest.raises(RuntimeError, match="ScopedIPUOutfeedQueue can only be created in eager mode"):
            ipu_outfeed_queue.ScopedIPUOutfeedQueue()
        assert session.run(program) == [1.0]
        assert session.run(outfeed.dequeue()).tolist() == [0.0, 0.0]


def test_last_before_the_first_element(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), ipu_session() as session:
        outfeed = Outfeed(Mode.LAST)
        program = loop(lambda x: (x + 1, outfeed.enqueue(x)), [0.0])
        newest = outfeed.dequeue()
        with pytest.raises(tf.errors.FailedPreconditionError, match="Trying to get the last value from an outfeed"):
            session.run(newest)
        session.run(program)
        assert session.run(newest) == 1.0


def test_the_end_of_the_data_is_an_error_of_python(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), ipu_session() as session:
        infeed = Infeed(create_single_increasing_dataset(3, shape=[], repeat=False))
        program = loop(add, [0.0], infeed, n=4)
        session.run(infeed.initializer)
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(program)


BAD_DATA: dict[str, tuple[Callable[[], tf.data.Dataset], type[Exception], str]] = {
    "int64": (lambda: tf.data.Dataset.range(5), tf.errors.FailedPreconditionError, "Unsupported datatype int64"),
    "empty": (
        lambda: create_single_increasing_dataset(5, shape=[1, 0]),
        tf.errors.InvalidArgumentError,
        "an input tensor to an infeed queue with a dimension of size 0",
    ),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_a_graph_refuses_data_when_the_infeed_starts(strategy: Strategy, case: str) -> None:  # noqa: F811
    make, kind, text = BAD_DATA[case]
    with tf.Graph().as_default(), ipu_session() as session:
        infeed = Infeed(make())
        loop(lambda total, x: total + 1.0, [0.0], infeed)
        with pytest.raises(kind, match=text):
            session.run(infeed.initializer)


def test_an_empty_element_is_refused_when_the_program_runs(strategy: Strategy) -> None:  # noqa: F811
    text = "an input tensor to an outfeed queue with a dimension of size 0"
    with tf.Graph().as_default(), ipu_session() as session:
        outfeed = Outfeed()
        program = loop(lambda x: (x, outfeed.enqueue(x)), [tf.zeros([2, 0])])
        with pytest.raises(tf.errors.InvalidArgumentError, match=text):
            session.run(program)
    with pytest.raises(tf.errors.InvalidArgumentError, match=text):
        strategy.run(tf.function(lambda: Outfeed().enqueue(tf.zeros([2, 0])) and None, autograph=False))


def test_one_enqueue_a_graph(strategy: Strategy) -> None:  # noqa: F811
    outfeed = Outfeed()

    def body(x: tf.Tensor) -> Any:
        assert not outfeed.enqueued
        enqueue = outfeed.enqueue(x)
        assert outfeed.enqueued
        with pytest.raises(ValueError, match="An outfeed can only be enqueued once."):
            outfeed.enqueue(x)
        return x + 1, enqueue

    for _ in range(2):
        with tf.Graph().as_default(), ipu_session() as session:
            assert not outfeed.enqueued
            with pytest.raises(ValueError, match="Trying to dequeue an outfeed which has not been enqueued."):
                outfeed.dequeue()
            program = loop(body, [0.0])
            assert outfeed.enqueued
            with pytest.raises(ValueError, match="An outfeed can only be enqueued once."):
                loop(lambda x: (x, outfeed.enqueue(x)), [0.0])
            session.run(program)
            np.testing.assert_array_equal(session.run(outfeed.dequeue()), [0.0, 1.0])
    with tf.Graph().as_default(), pytest.raises(tf.errors.FailedPreconditionError, match="different tensor shape"):
        loop(lambda x: (x, outfeed.enqueue(x)), [tf.zeros([2])])


def test_before_any_enqueue_an_eager_dequeue_gives_nothing(strategy: Strategy) -> None:  # noqa: F811
    outfeed, seen = Outfeed(), []
    assert outfeed.dequeue() == [] and list(outfeed) == []
    strategy.run(tf.function(lambda: outfeed.enqueue(1.0) and None, autograph=False))
    assert outfeed.enqueued
    # A thread that polls sees the queue of the thread that builds the program.
    poll = threading.Thread(target=lambda: seen.extend([outfeed.enqueued, outfeed.dequeue(True).numpy().tolist()]))
    poll.start()
    poll.join()
    assert seen == [True, [1.0]]


def test_a_scoped_outfeed_is_freed_with_its_object(strategy: Strategy) -> None:  # noqa: F811
    outfeed = ipu_outfeed_queue.ScopedIPUOutfeedQueue()
    function = tf.function(lambda queue: queue.enqueue(1.0) and None, autograph=False)
    strategy.run(function, [outfeed])
    np.testing.assert_array_equal(outfeed.dequeue(), [1.0])
    name = outfeed._id
    assert queues.outfeed(name).name == name
    outfeed._delete()
    with pytest.raises(tf.errors.NotFoundError, match="does not exist"):
        outfeed._delete()
    name = ipu_outfeed_queue.ScopedIPUOutfeedQueue()._id
    gc.collect()
    assert not queues.remove(name)


@pytest.mark.usefixtures("graphcore_rules")
def test_the_iterators_are_where_graphcore_has_them(strategy: Strategy) -> None:  # noqa: F811
    assert ipu_infeed_queue.IPUIterator is ipu_infeed_queue.IPUOwnedIterator
    with strategy.scope():
        assert isinstance(iter(SCALARS), ipu_infeed_queue.IPUOwnedIterator)


def test_variables_belong_to_the_graph_also_where_it_is_the_default_one(strategy: Strategy) -> None:  # noqa: F811
    """Programs written for TensorFlow 1 often never enter a graph."""
    tf1.reset_default_graph()
    with context.graph_mode(), ipu_session() as session, device_work() as work:
        step = on_ipu(lambda: tf1.train.GradientDescentOptimizer(0.5).minimize(tf1.get_variable("w", [], tf.float32)))
        session.run(tf1.global_variables_initializer())
        before = session.run(tf1.trainable_variables()[0])
        session.run(step)
        assert session.run(tf1.trainable_variables()[0]) == before - 0.5
    assert work.counts.executions == 1


def test_a_program_without_inputs_outlives_its_trace(strategy: Strategy) -> None:  # noqa: F811
    with tf.Graph().as_default(), ipu_session() as session:
        result = loop(lambda x: x + 1, [0.0])
        gc.collect()
        assert session.run(result) == [2.0]


def test_outside_an_ipu_scope_only_nothing_is_compiled() -> None:
    with tf.Graph().as_default(), tf.device("/device:CPU:0"):
        assert isinstance(ipu.ipu_compiler.compile(lambda: tf.no_op()), tf.Operation)
        with pytest.raises(Exception, match="it was not placed on an IPU device"):
            ipu.ipu_compiler.compile(lambda x: x + 1, [1.0])
    with pytest.raises(Exception, match="it was not placed on an IPU device"):
        ipu.ipu_compiler.compile(lambda x: x + 1, [1.0])


class EstimatorSpec:
    """Something that looks like an estimator's."""


@pytest.mark.parametrize("results", [EstimatorSpec(), [2, [], [EstimatorSpec()]]])
def test_an_estimator_compiles_by_itself(results: Any) -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="it already handles all the xla compilation"):
        on_ipu(lambda: results)


def test_tensors_come_before_operations() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Tensors followed by zero or more Operations"):
        on_ipu(lambda: [tf.no_op(), tf.constant(1.0)])


def test_without_a_configuration_nothing_runs() -> None:
    with tf.Graph().as_default(), ipu_session() as session:
        result = on_ipu(lambda: tf.constant(1.0) + 1)
        with pytest.raises(tf.errors.FailedPreconditionError, match="No device target has been configured. Did you"):
            session.run(result)
