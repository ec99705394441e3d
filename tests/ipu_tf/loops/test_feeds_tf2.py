"""Infeeds, outfeeds and loops in TF2: against the same arithmetic done by hand."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from ipu_tf.device.feeds import staging
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1
Outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue
Infeed = ipu.ipu_infeed_queue.IPUInfeedQueue
Mode = ipu.ipu_outfeed_queue.IPUOutfeedMode


def counting(elements: int | None = None) -> tf.data.Dataset:
    """0., 1., 2., ... as float32 scalars."""
    return tf.data.Dataset.range(elements if elements is not None else 1 << 40).map(lambda i: tf.cast(i, tf.float32))


def sum_loop(steps: int, infeed: Infeed, outfeed: Outfeed | None = None) -> Any:
    """A tf.function that adds `steps` elements up on the device."""

    def body(total: tf.Tensor, element: tf.Tensor) -> Any:
        total = total + element
        return (total, outfeed.enqueue(total)) if outfeed is not None else total

    return tf.function(lambda: ipu.loops.repeat(steps, body, [tf.constant(0.0)], infeed), autograph=False)


def program(build: Any) -> Any:
    """A tf.function that builds something and returns nothing: one may not return operations."""

    def function() -> None:
        build()

    return tf.function(function, autograph=False)


def test_position_persists_and_initializer_restarts(strategy: Strategy) -> None:  # noqa: F811
    infeed = Infeed(counting())
    loop = sum_loop(3, infeed)
    assert [float(strategy.run(loop)) for _ in range(3)] == [3.0, 12.0, 21.0]
    assert infeed.initializer is None
    assert float(strategy.run(loop)) == 3.0


def test_every_element_in_order_and_the_queue_empties(strategy: Strategy) -> None:  # noqa: F811
    outfeed = Outfeed()
    loop = sum_loop(4, Infeed(counting()), outfeed)
    with device_work() as work:
        strategy.run(loop)
        strategy.run(loop)
    np.testing.assert_array_equal(outfeed.dequeue(), [0, 1, 3, 6, 4, 9, 15, 22])
    assert outfeed.dequeue().shape == (0,)
    assert (work.counts.programs, work.counts.executions, work.counts.steps) == (1, 2, 8)


def test_last_element_only(strategy: Strategy) -> None:  # noqa: F811
    outfeed = Outfeed(outfeed_mode=Mode.LAST)
    loop = sum_loop(4, Infeed(counting()), outfeed)
    strategy.run(loop)
    assert float(outfeed.dequeue()) == 6.0
    assert float(outfeed.dequeue()) == 6.0


def test_last_element_before_the_first_is_an_error(strategy: Strategy) -> None:  # noqa: F811
    outfeed = Outfeed(outfeed_mode=Mode.LAST)
    sum_loop(1, Infeed(counting()), outfeed).get_concrete_function()
    with pytest.raises(tf.errors.FailedPreconditionError, match="before it was executed"):
        outfeed.dequeue()


def test_iterating_over_an_outfeed(strategy: Strategy) -> None:  # noqa: F811
    outfeed = Outfeed()
    strategy.run(sum_loop(3, Infeed(counting()), outfeed))
    assert [float(element) for element in outfeed] == [0.0, 1.0, 3.0]
    assert list(outfeed) == []


@pytest.mark.parametrize("structure", ["tensor", "tuple", "dict", "dict in tuple"])
def test_structures_of_infeed_and_outfeed_elements(strategy: Strategy, structure: str) -> None:  # noqa: F811
    one = counting()
    datasets = {
        "tensor": one,
        "tuple": one.map(lambda x: (x, x + 1)),
        "dict": one.map(lambda x: {"a": x, "b": x + 1}),
        "dict in tuple": one.map(lambda x: (x, {"b": x + 1})),
    }
    outfeed = Outfeed()

    def body(*args: Any, **kwargs: Any) -> Any:
        return outfeed.enqueue({"args": args, "kwargs": kwargs})

    infeed = Infeed(datasets[structure])
    strategy.run(program(lambda: ipu.loops.repeat(2, body, [], infeed)))
    elements = tf.nest.map_structure(lambda t: t.numpy().tolist(), outfeed.dequeue())
    expected = {
        "tensor": {"args": ([0, 1],), "kwargs": {}},
        "tuple": {"args": ([0, 1], [1, 2]), "kwargs": {}},
        "dict": {"args": (), "kwargs": {"a": [0, 1], "b": [1, 2]}},
        "dict in tuple": {"args": ([0, 1], {"b": [1, 2]}), "kwargs": {}},
    }
    assert elements == expected[structure]


def test_nested_loops_take_elements_in_order(strategy: Strategy) -> None:  # noqa: F811
    infeed, outfeed = Infeed(counting()), Outfeed()
    total = tf.Variable(0.0)

    def inner(element: tf.Tensor) -> tf.Operation:
        total.assign_add(element)
        return outfeed.enqueue(total.read_value())

    def outer(count: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([ipu.loops.repeat(3, inner, [], infeed)]):
            return count + 1

    result = strategy.run(tf.function(lambda: ipu.loops.repeat(2, outer, [tf.constant(0)]), autograph=False))
    assert int(result) == 2
    np.testing.assert_array_equal(outfeed.dequeue(), np.cumsum(np.arange(6)))
    assert float(total) == 15.0


def test_data_dependent_loop_leaves_what_it_did_not_use(strategy: Strategy) -> None:  # noqa: F811
    infeed = Infeed(counting())
    until = tf.function(
        lambda: ipu.loops.while_loop(lambda t: t < 9.5, lambda t, x: t + x, [tf.constant(0.0)], infeed), autograph=False
    )
    assert float(strategy.run(until)) == 10.0  # 0 + 1 + 2 + 3 + 4
    assert float(strategy.run(until)) == 11.0  # 5 + 6


@settings(max_examples=15, deadline=None)
@given(runs=st.lists(st.integers(0, 40), min_size=1, max_size=4))
def test_any_lengths_of_runs_see_every_element_once(runs: list[int]) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    infeed, outfeed = Infeed(counting()), Outfeed()

    @tf.function(autograph=False)
    def loop(steps: tf.Tensor) -> None:
        ipu.loops.repeat(steps, lambda x: outfeed.enqueue(x), [], infeed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "CHUNK_STEPS", 8)
        for steps in runs:
            ipu.ipu_strategy.IPUStrategy().run(loop, [tf.constant(steps)])
    elements = outfeed.dequeue()
    np.testing.assert_array_equal(elements, np.arange(sum(runs)))


def test_a_long_loop_stages_bounded_chunks(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setattr(staging, "CHUNK_BYTES", 64 << 10)

    def elements() -> Any:
        for index in itertools.count():
            yield np.full((1024,), index, np.float32)

    dataset = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([1024], tf.float32))
    infeed, seen = Infeed(dataset), list[int]()
    original = staging.stage_buffers

    def watched(types: Any, capacity: int, replicas: Any) -> Any:
        seen.append(capacity)
        return original(types, capacity, replicas)

    monkeypatch.setattr("ipu_tf.device.feeds.stager.stage_buffers", watched)
    loop = tf.function(
        lambda: ipu.loops.repeat(500, lambda t, x: t + x[0], [tf.constant(0.0)], infeed), autograph=False
    )
    assert float(strategy.run(loop)) == sum(range(500))
    assert seen == [16, 16]  # two sets of buffers, 64 KiB each


def test_exhausted_infeed_keeps_complete_iterations(strategy: Strategy) -> None:  # noqa: F811
    steps, infeed = tf.Variable(0.0), Infeed(counting(5))

    def body(element: tf.Tensor) -> tf.Operation:
        return steps.assign_add(1.0 + 0.0 * element).op

    with pytest.raises(tf.errors.OutOfRangeError, match="ran out of data after 5 elements"):
        strategy.run(program(lambda: ipu.loops.repeat(8, body, [], infeed)))
    assert float(steps) == 5.0


def threads_but_endings() -> set[threading.Thread]:
    """All but those in which iterators of other tests may be ending, each in one of its own."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("ipu-destroy-iterator")}


def test_failing_dataset_reaches_the_user_and_leaves_no_thread(strategy: Strategy) -> None:  # noqa: F811
    def fails(x: np.ndarray) -> np.ndarray:
        if x == 5:
            raise KeyError("element five is broken")
        return x

    dataset = counting().map(lambda x: tf.ensure_shape(tf.numpy_function(fails, [x], tf.float32), ()))
    steps, infeed = tf.Variable(0.0), Infeed(dataset)
    loop = program(lambda: ipu.loops.repeat(8, lambda x: steps.assign_add(1.0 + 0 * x).op, [], infeed))
    threads = threads_but_endings()
    with pytest.raises(tf.errors.OpError, match="element five is broken"):
        strategy.run(loop)
    assert threads_but_endings() == threads
    assert float(steps) == 5.0


def test_a_shape_that_changes_is_refused(strategy: Strategy) -> None:  # noqa: F811
    with pytest.raises(ValueError, match="not fully defined.*drop_remainder=True"):
        Infeed(counting(5).batch(2))


@pytest.mark.parametrize("dtype", [tf.int64, tf.float64])
def test_dtypes_the_device_has_not(strategy: Strategy, dtype: tf.DType) -> None:  # noqa: F811
    with pytest.raises(tf.errors.FailedPreconditionError, match=f"Unsupported datatype {dtype.name} on index 0"):
        Infeed(counting().map(lambda x: tf.cast(x, dtype)))


def test_deleted_infeed(strategy: Strategy) -> None:  # noqa: F811
    infeed = Infeed(counting())
    assert infeed.deleter is None
    with pytest.raises(tf.errors.FailedPreconditionError, match="has not been created"):
        strategy.run(sum_loop(2, infeed))
    with pytest.raises(tf.errors.NotFoundError, match="run the initializer"):
        _ = infeed.deleter


def test_one_enqueue_a_program(strategy: Strategy) -> None:  # noqa: F811
    outfeed = Outfeed()

    @tf.function(autograph=False)
    def twice(x: tf.Tensor) -> None:
        outfeed.enqueue(x)
        outfeed.enqueue(x + 1)

    with pytest.raises(ValueError, match="An outfeed can only be enqueued once"):
        strategy.run(twice, [tf.constant(1.0)])


def test_an_enqueue_outside_a_loop(strategy: Strategy) -> None:  # noqa: F811
    infeed, outfeed = Infeed(counting()), Outfeed()
    with strategy.scope():
        iterator = iter(counting().skip(3))

    @tf.function
    def function() -> tf.Tensor:
        outfeed.enqueue(next(iterator))
        return ipu.loops.repeat(2, lambda t, x: t + x, [tf.constant(0.0)], infeed)

    assert float(strategy.run(function)) == 1.0
    np.testing.assert_array_equal(outfeed.dequeue(), [3.0])


def test_the_cpu_cannot_run_a_program_with_feeds(strategy: Strategy) -> None:  # noqa: F811
    loop = sum_loop(2, Infeed(counting()))
    with pytest.raises(tf.errors.OpError):
        loop()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prefetch_depth": -1}, "must be greater than zero"),
        ({"prefetch_depth": 256}, "must be less than 256"),
        ({"device_ordinal": -1}, "must be >= 0"),
        ({"device_ordinal": 1.5}, "must be an integer"),
    ],
)
def test_arguments_of_an_infeed(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Infeed(counting(), **arguments)


def test_arguments_of_an_outfeed() -> None:
    with pytest.raises(ValueError, match="Expected `outfeed_mode` value to be of"):
        Outfeed(outfeed_mode="all")
    with pytest.raises(ValueError, match="buffer depth cannot be less than 1"):
        Outfeed(buffer_depth=0)


def test_iterating_a_last_queue_is_refused() -> None:
    with pytest.raises(RuntimeError, match="'IPUOutfeedMode.ALL'"):
        iter(Outfeed(outfeed_mode=Mode.LAST))


def test_initializer_of_an_unread_queue_keeps_its_iterator(strategy: Strategy) -> None:  # noqa: F811
    """As in stock TensorFlow, whose first iterator over a shuffled dataset has another order than the second."""

    def shuffled() -> tf.data.Dataset:
        tf.random.set_seed(5)
        return counting(100).shuffle(100)

    first, second = (list(iterator.take(3).as_numpy_iterator()) for iterator in [shuffled()] * 2)
    assert first != second
    infeed, outfeed = Infeed(shuffled()), Outfeed()
    assert infeed.initializer is None
    strategy.run(sum_loop(3, infeed, outfeed))
    np.testing.assert_array_equal(outfeed.dequeue(), np.cumsum(first, dtype=np.float32))
    assert infeed.initializer is None
    strategy.run(sum_loop(3, infeed, outfeed))
    np.testing.assert_array_equal(outfeed.dequeue(), np.cumsum(second, dtype=np.float32))
