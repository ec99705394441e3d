"""TensorFlow's own iterators in programs: closed over or given as an argument, made inside or outside of the scope."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._data import narrow_dtypes
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

Strategy = ipu.ipu_strategy.IPUStrategyV1


def made(strategy: Strategy, in_scope: bool) -> Any:  # noqa: F811
    dataset = tf.data.Dataset.range(100).map(lambda i: {"a": tf.cast(i, tf.float32), "b": (tf.cast(-i, tf.int32),)})
    if not in_scope:
        return iter(dataset)
    with strategy.scope():
        return iter(dataset)


def summed(iterator: Any, steps: Any) -> tuple[tf.Tensor, tf.Tensor]:
    a, b = 0.0, 0
    for _ in tf.range(steps):
        element = next(iterator)
        a, b = a + element["a"], b + element["b"][0]
    return a, b


def test_tuples_in_tuples(strategy: Strategy) -> None:  # noqa: F811
    iterator = iter(tf.data.Dataset.range(1, 4).map(lambda i: (tf.cast(i, tf.float32), (tf.cast(-i, tf.int32),))))
    second = tf.function(lambda: next(iterator)[1][0])
    with device_work() as work:
        assert [int(strategy.run(second)) for _ in range(3)] == [-1, -2, -3]
    assert work.counts.executions == 3


@pytest.mark.parametrize("in_scope", [True, False])
@pytest.mark.parametrize("closed_over", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_closed_over_and_given(in_scope: bool, closed_over: bool, count: int) -> None:
    with ipus(count) as several:
        iterator, steps = made(several, in_scope), tf.constant(3)
        given = tf.function(summed)
        closed = tf.function(lambda steps: summed(iterator, steps))
        with several.scope():
            for run in range(2):
                args = [steps] if closed_over else [iterator, steps]
                a, b = several.run(closed if closed_over else given, args)
                taken = [3 * count * run + count * step for step in range(3)]  # by replica 0
                assert (float(a), int(b)) == (sum(taken), -sum(taken))


def test_the_host_and_the_device_go_on_from_the_same_place(strategy: Strategy) -> None:  # noqa: F811
    iterator = made(strategy, in_scope=False)
    program = tf.function(lambda: summed(iterator, 3)[0])
    assert float(next(iterator)["a"]) == 0
    assert float(strategy.run(program)) == 1 + 2 + 3
    assert float(next(iterator)["a"]) == 4
    assert float(strategy.run(program)) == 5 + 6 + 7
    assert float(tf.function(lambda: next(iterator)["a"])()) == 8  # a function of the host takes it from the host


def test_one_iterator_given_and_closed_over(strategy: Strategy) -> None:  # noqa: F811
    iterator = made(strategy, in_scope=False)
    results = strategy.run(tf.function(lambda other: (next(iterator)["a"], next(other)["a"])), [iterator])
    np.testing.assert_array_equal(sorted(map(float, results)), [0, 1])


def test_in_a_graph_and_at_the_end(strategy: Strategy) -> None:  # noqa: F811
    iterator = iter(tf.data.Dataset.range(4).map(lambda i: tf.cast(i, tf.float32)))
    inner = tf.function(lambda: next(iterator) + next(iterator))
    outer = tf.function(lambda: strategy.run(inner))
    assert float(outer()) == 1.0
    assert float(outer()) == 5.0
    with pytest.raises(tf.errors.OutOfRangeError):
        strategy.run(inner)


@pytest.mark.parametrize("in_scope", [True, False])
def test_a_loop_over_an_iterator_is_refused(strategy: Strategy, in_scope: bool) -> None:  # noqa: F811
    """It would be traced without end."""
    iterator = made(strategy, in_scope)

    @tf.function
    def program(iterator: Any) -> tf.Tensor:
        total = 0.0
        for element in iterator:
            total += element["a"]
        return total

    with strategy.scope(), pytest.raises(NotImplementedError, match="for _ in tf.range"):
        strategy.run(program, [iterator])


def test_an_iterator_made_in_the_function_is_refused(strategy: Strategy) -> None:  # noqa: F811
    dataset = tf.data.Dataset.range(3)
    with strategy.scope(), pytest.raises(NotImplementedError, match="Make it before, in the strategy's scope"):
        strategy.run(tf.function(lambda: next(iter(dataset))))


@pytest.mark.parametrize("closed_over", [True, False])
def test_elements_of_64_bits_keep_their_dtypes_in_programs(
    strategy: Strategy,  # noqa: F811
    closed_over: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(narrow_dtypes, "first_time", lambda *what: True)
    iterator = iter(tf.data.Dataset.range(4).map(lambda i: (i, tf.cast(i, tf.float64) + 0.5)))

    def program(given: Any) -> tuple[tf.Tensor, tf.Tensor]:
        whole, real = next(given)
        return tf.constant([1, 2], tf.int64) + whole, tf.cast(tf.constant(2.0, tf.float64) * real, tf.float32)

    function = tf.function((lambda: program(iterator)) if closed_over else program)
    with device_work() as work:
        found = [strategy.run(function, [] if closed_over else [iterator]) for _ in range(2)]
    assert work.counts.executions == 2
    assert [(whole.numpy().tolist(), float(real)) for whole, real in found] == [([1, 2], 1.0), ([2, 3], 3.0)]
    assert found[0][0].dtype == tf.int64
    assert next(iterator)[1].dtype == tf.float64
    assert [record.getMessage().rpartition(" ")[2] for record in caplog.records] == ["int32.", "float32."]


def test_a_number_that_32_bits_do_not_have_is_refused(strategy: Strategy) -> None:  # noqa: F811
    iterator = iter(tf.data.Dataset.from_tensor_slices(tf.constant([1, 2**31], tf.int64)))
    program = tf.function(lambda: next(iterator))
    assert int(strategy.run(program)) == 1
    with pytest.raises(Exception, match="2147483648"):
        strategy.run(program)


@pytest.mark.parametrize("made_in_scope", [True, False])
def test_a_function_within_a_program_is_given_iterators(strategy: Strategy, made_in_scope: bool) -> None:  # noqa: F811
    def iterators() -> list[Any]:
        datasets = [tf.data.Dataset.range(first, first + 9) for first in (0, 100)]
        return [iter(each.map(lambda i: tf.cast(i, tf.float32))) for each in datasets]

    traced = []

    @tf.function
    def inner(source: Any) -> tf.Tensor:
        traced.append(source)
        return next(source) + next(source)

    def both(first: Any, second: Any) -> tf.Tensor:
        return tf.stack([inner(first), inner(second), inner(first)])

    wanted = tf.function(both)(*iterators())
    traced.clear()
    with strategy.scope() if made_in_scope else contextlib.nullcontext():
        first, second = iterators()
    with device_work() as work:
        np.testing.assert_array_equal(strategy.run(tf.function(lambda: both(first, second))), wanted)
        np.testing.assert_array_equal(strategy.run(tf.function(lambda: both(first, second))), wanted + [8, 4, 8])
    assert work.counts.executions == 2
    assert len(traced) == 2  # once for each iterator
    assert float(inner(second)) == 104.0 + 105.0  # a function of the host takes them from the host


def test_an_iterator_that_a_graph_gives_to_a_program(strategy: Strategy) -> None:  # noqa: F811
    iterator = iter(tf.data.Dataset.range(9).map(lambda i: tf.cast(i, tf.float32)))
    inner = tf.function(lambda source: next(source) + next(source))
    outer = tf.function(lambda: strategy.run(inner, (iterator,)))
    assert [float(outer()) for _ in range(3)] == [1.0, 5.0, 9.0]

    @tf.function
    def given(source: Any) -> Any:
        return strategy.run(inner, (source,))

    with pytest.raises(NotImplementedError, match=r"an argument of a `tf.function` of the host.* \(close over it\)"):
        given(iterator)
