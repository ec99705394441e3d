"""Outlined functions, barriers, remaps and printing: against the plain computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

tf1 = tf.compat.v1
Strategy = ipu.ipu_strategy.IPUStrategyV1

weight = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def layer(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """Returns the results of the outlined functions."""
    return tf.tanh(x @ w) + tf.reduce_sum(w)


def nested(x: tf.Tensor, w: tf.Tensor) -> Any:
    """An outlined function within one, defined where it is used, with its argument taken from around it."""

    @ipu.outlined_function(unique_sharding=True, keep_input_layouts=False, name="outer")
    def outer(x: tf.Tensor) -> Any:
        @ipu.outlined_function
        def inner() -> tf.Tensor:
            return layer(x, w)

        return inner()

    return outer(x)


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "decorator": lambda x, w: ipu.outlined_function(layer)(x, w),
    "with arguments": lambda x, w: ipu.outlined_function(keep_input_layouts=True)(layer)(x, w),
    "nested": nested,
    "barrier": lambda x, w: layer(*ipu.control_flow_ops.barrier([x, w], insert_barrier_for_gradients=True)),
    "remap": lambda x, w: layer(ipu.internal_ops.remap(x), ipu.internal_ops.remap_deduce(w, name="w")),
}


@pytest.mark.parametrize("way", WAYS)
def test_values_and_gradients_are_those_of_the_function(strategy: Strategy, way: str) -> None:  # noqa: F811
    def program(function: Callable[[Any, Any], Any]) -> Any:
        def step(x: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                w = tf.constant(weight)
                tape.watch([x, w])
                y = function(x, w)
                y = y + function(x * 2, w)
            return y, tape.gradient(y, [x, w])

        return tf.function(step, autograph=False)

    x = tf.constant(np.arange(6, dtype=np.float32).reshape(2, 3) / 6)
    with device_work() as work:
        mine = strategy.run(program(WAYS[way]), [x])
    for got, wanted in zip(tf.nest.flatten(mine), tf.nest.flatten(program(layer)(x)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert work.counts.executions == 1


def test_structures_variables_and_none(strategy: Strategy) -> None:  # noqa: F811
    scale = tf.Variable(3.0)

    @ipu.outlined_function
    def function(x: tf.Tensor, s: tf.Tensor) -> Any:
        return {"a": x * s, "b": (None, x + scale)}

    result = strategy.run(tf.function(lambda x: function(x, scale), autograph=False), [tf.constant(2.0)])
    assert float(result["a"]) == 6.0
    assert result["b"][0] is None
    assert float(result["b"][1]) == 5.0


def test_training_in_a_session(strategy: Strategy) -> None:  # noqa: F811
    def losses(wrap: Callable[..., Any], on_device: bool) -> list[float]:
        with tf.Graph().as_default(), tf1.Session() as session:
            x = tf1.placeholder(tf.float32, [2, 3])

            def step(x: tf.Tensor) -> Any:
                w = tf1.get_variable("w", initializer=weight, use_resource=True)
                loss = tf.reduce_sum(tf.square(wrap(layer)(x, w)))
                return loss, tf1.train.GradientDescentOptimizer(0.01).minimize(loss)

            if on_device:
                with ipu.scopes.ipu_scope("/device:IPU:0"):
                    fetched = ipu.ipu_compiler.compile(step, [x])
            else:
                fetched = list(step(x))
            session.run(tf1.global_variables_initializer())
            return [session.run(fetched, {x: np.ones((2, 3))})[0] for _ in range(3)]

    with device_work() as work:
        mine = losses(ipu.outlined_function, on_device=True)
    np.testing.assert_allclose(mine, losses(lambda f: f, on_device=False), rtol=1e-5)
    assert work.counts.executions == 3


def test_ignored_arguments_are_listed() -> None:
    ipu.outlined_function(layer, unique_sharding=True, keep_input_layouts=True)
    names = {item.name for item in ipu.emulation.ignored_arguments()}
    assert {"outlined_function.unique_sharding", "outlined_function.keep_input_layouts"} <= names


def test_printing_comes_in_order_each_time(strategy: Strategy, capfd: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    def body(x: tf.Tensor) -> Any:
        first = ipu.internal_ops.print_tensor(x, name="x")
        again = ipu.internal_ops.print_tensor(x, name="x")
        return x * 2, first, again

    strategy.run(tf.function(lambda x: ipu.loops.repeat(2, body, x), autograph=False), [tf.constant([1.0, 2.0])])
    printed = [line for line in capfd.readouterr().err.splitlines() if line.startswith("x:")]
    assert printed == ["x: [1. 2.]"] * 2 + ["x: [2. 4.]"] * 2


def test_printing_needs_no_use_in_a_session(strategy: Strategy, capfd: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    def program(x: tf.Tensor) -> tf.Tensor:
        ipu.internal_ops.print_tensor(x, name="value")
        return x + 1

    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.int32, [])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            result = ipu.ipu_compiler.compile(program, [x])
        assert session.run(result, {x: 7}) == [8]
    assert "value: 7" in capfd.readouterr().err


def test_printing_at_once_in_eager_mode(capfd: pytest.CaptureFixture[str]) -> None:
    assert ipu.internal_ops.print_tensor(tf.constant(4), name="four") is None
    assert "four: 4" in capfd.readouterr().err
