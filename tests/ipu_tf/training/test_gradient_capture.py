"""Gradients that pass by `capture_upstream_gradients`: against gradients asked for by name."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.eager.backprop import GradientCaptureContext, GradientCaptureTape, num_gradient_collection_tapes
from ipu_tf.ops.grad_util_ops import capture_upstream_gradients
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1


@pytest.fixture(autouse=True)
def none_left_open() -> Iterator[None]:
    """No context of one test waits for gradients in the next."""
    gc.collect()
    assert num_gradient_collection_tapes() == 0
    yield
    gc.collect()
    assert num_gradient_collection_tapes() == 0


def model(x: tf.Tensor, capture: Callable[..., Any]) -> tf.Tensor:
    """Two values captured on the way, one of them a pair."""
    a, b = capture((x * x, tf.sin(x)), tag="pair")
    c = capture(tf.tanh(a * b), tag="after")
    return tf.reduce_sum(c * c)


def by_tape(x: tf.Tensor) -> Any:
    """The gradient, and what the tape captured."""
    with GradientCaptureTape() as tape:
        tape.watch(x)
        y = model(x, capture_upstream_gradients)
    return tape.gradient(y, x), tape.captured_gradients


def by_context(x: tf.Tensor) -> Any:
    """The same by a context and `tf.gradients`."""
    with GradientCaptureContext() as context:
        y = model(x, capture_upstream_gradients)
        [gradient] = tf.gradients(y, [x])
    return gradient, context.captured_gradients


def by_outlined_function(x: tf.Tensor) -> Any:
    """The same with the captures in an outlined function."""
    with GradientCaptureTape() as tape:
        tape.watch(x)
        y = ipu.outlined_function(lambda x: model(x, capture_upstream_gradients))(x)
    return tape.gradient(y, x), tape.captured_gradients


def expected(x: tf.Tensor) -> Any:
    """The same, each gradient asked for."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        seen: dict[str, Any] = {}

        def note(values: Any, tag: str) -> Any:
            return seen.setdefault(tag, tf.nest.map_structure(tf.identity, values))

        y = model(x, note)
    gradient, pair, after = tape.gradient(y, [x, seen["pair"], seen["after"]])
    return gradient, {"pair": list(pair), "after": [after]}


@pytest.mark.parametrize("captured", [by_tape, by_context, by_outlined_function])
def test_captured_gradients(strategy: Strategy, captured: Callable[..., Any]) -> None:  # noqa: F811
    x = tf.constant([0.3, -1.2, 0.7])
    with device_work() as work:
        gradient, found = strategy.run(tf.function(captured, autograph=False), [x])
    wanted, wanted_found = tf.function(expected, autograph=False)(x)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-5)
    assert {tag: len(kept) for tag, kept in found.items()} == {"pair": 2, "after": 1}
    for tag, kept in wanted_found.items():
        for got, want in zip(found[tag], kept, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
    assert work.counts.executions == 1


def test_forward_pass_alone(strategy: Strategy) -> None:  # noqa: F811
    def forward(x: tf.Tensor) -> Any:
        with GradientCaptureTape() as tape:
            y = tf.tanh(capture_upstream_gradients(x, tag="t"))
        assert tape.captured_gradients == {}
        return y

    x = np.ones(4, np.float16)
    np.testing.assert_array_equal(strategy.run(tf.function(forward, autograph=False), [x]), np.tanh(x))


def test_eagerly_on_the_host() -> None:
    x = tf.Variable(3.0)
    with GradientCaptureTape() as tape:
        y = capture_upstream_gradients(x * x, tag="square") * 5.0
    assert float(tape.gradient(y, x)) == 30.0
    assert [float(g) for g in tape.captured_gradients["square"]] == [5.0]


def test_the_innermost_context_captures() -> None:
    x = tf.Variable(1.0)
    with GradientCaptureTape() as outer, GradientCaptureTape() as inner:
        assert num_gradient_collection_tapes() == 2
        y = capture_upstream_gradients(x * 2.0, tag="y")
    assert float(inner.gradient(y, x)) == 2.0
    assert num_gradient_collection_tapes() == 1
    assert list(inner.captured_gradients) == ["y"]
    assert outer.captured_gradients == {}


def test_each_thread_captures_its_own() -> None:
    x, entered, ended = tf.Variable(3.0), threading.Event(), threading.Event()
    others: dict[str, list[tf.Tensor]] = {"unread": []}

    def other() -> None:
        with GradientCaptureTape() as tape:
            entered.set()
            ended.wait()
        others.clear()
        others.update(tape.captured_gradients)

    with GradientCaptureTape() as tape:
        y = capture_upstream_gradients(x * x, tag="y") * 5.0
    thread = threading.Thread(target=other)
    thread.start()
    entered.wait()
    try:
        tape.gradient(y, x)
    finally:
        ended.set()
        thread.join()
    assert [float(each) for each in tape.captured_gradients["y"]] == [5.0] and others == {}


def test_a_persistent_tape_captures_until_it_is_read() -> None:
    x = tf.Variable(1.0)
    with GradientCaptureTape(persistent=True) as tape:
        y = capture_upstream_gradients(x * 2.0, tag="y")
    for _ in range(2):
        tape.gradient(y, x)
    assert len(tape.captured_gradients["y"]) == 2
    assert num_gradient_collection_tapes() == 0


def test_captures_of_one_tag_come_in_order_of_the_backward_pass() -> None:
    x = tf.Variable(1.0)
    with GradientCaptureTape() as tape:
        y = capture_upstream_gradients(x * 2.0, tag="y")
        z = 3.0 * capture_upstream_gradients(y * 5.0, tag="y")
    tape.gradient(z, x)
    assert [float(g) for g in tape.captured_gradients["y"]] == [3.0, 15.0]


def test_a_context_that_is_gone_captures_nothing() -> None:
    def abandoned() -> None:
        with GradientCaptureContext():
            pass

    abandoned()
    gc.collect()
    assert num_gradient_collection_tapes() == 0


def test_no_context(strategy: Strategy) -> None:  # noqa: F811
    def program(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = capture_upstream_gradients(x, tag="x")
        return tape.gradient(y, x)

    with pytest.raises(RuntimeError, match=r"capture_upstream_gradients may only be used within the context of "):
        strategy.run(tf.function(program, autograph=False), [tf.constant(1.0)])


def test_captured_gradients_are_read_only() -> None:
    context = GradientCaptureContext()
    with pytest.raises(ValueError, match=r"captured_gradients is read only\."):
        context.captured_gradients = {}
