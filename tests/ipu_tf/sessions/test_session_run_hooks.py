"""`IPULoggingTensorHook`: content, times and tensors of its log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ipu_session_run_hooks import IPULoggingTensorHook
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

tf1 = tf.compat.v1
Strategy = ipu.ipu_strategy.IPUStrategyV1


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Messages of TensorFlow's log at level INFO, in words with an equals sign."""
    found: list[str] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if " = " in record.getMessage() or "formatted" in record.getMessage():
                found.append(record.getMessage().split(" (")[0])

    logger, handler = tf.get_logger(), Keeps()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(level)


def runs(hook: Any, program: Callable[[], Any], count: int, sessions: int = 1) -> None:
    """Runs a program so often in a monitored session with the hook, in so many sessions, each anew."""
    with tf.Graph().as_default():
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            compiled = ipu.ipu_compiler.compile(program)
        for _ in range(sessions):
            with tf1.train.MonitoredTrainingSession(hooks=[hook]) as session, device_work() as work:
                for _ in range(count):
                    session.run(compiled)
            assert work.counts.executions == count


def counting(hook: Any) -> Callable[[], Any]:
    """A program that counts its runs and logs the number."""

    def program() -> Any:
        with tf1.variable_scope("", use_resource=True):
            step = tf1.get_variable("step", initializer=0)
        return hook.log({"step": step.assign_add(1, read_value=True)})

    return program


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"every_n_iter": 1}, ["step = 1", "step = 2", "step = 3", "step = 4", "step = 5"]),
        ({"every_n_iter": 2}, ["step = 1", "step = 3", "step = 5"]),
        ({"every_n_iter": 4, "at_end": True}, ["step = 1", "step = 5", "step = 5"]),
        ({"every_n_secs": 1000}, ["step = 1"]),
        ({"at_end": True}, ["step = 5"]),
        ({"every_n_iter": 3, "logging_mode": IPULoggingTensorHook.LoggingMode.ALL}, ["step = [1]", "step = [2 3 4]"]),
        ({"at_end": True, "logging_mode": IPULoggingTensorHook.LoggingMode.ALL}, ["step = [1 2 3 4 5]"]),
    ],
)
def test_when_it_logs(
    strategy: Strategy,  # noqa: F811
    lines: list[str],
    options: dict[str, Any],
    expected: list[str],
) -> None:
    hook = IPULoggingTensorHook(**options)
    runs(hook, counting(hook), 5)
    assert lines == expected


def test_it_can_be_used_for_another_session(strategy: Strategy, lines: list[str]) -> None:  # noqa: F811
    hook = IPULoggingTensorHook(every_n_iter=2, logging_mode=IPULoggingTensorHook.LoggingMode.ALL)
    runs(hook, counting(hook), 4, sessions=2)
    assert lines == ["step = [1]", "step = [2 3]"] * 2


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda a, b: a, "a:0 = 42.0"),
        (lambda a, b: [a, b], "a:0 = 42.0, b:0 = 43.5"),
        (lambda a, b: {"first": b, "second": a}, "first = 43.5, second = 42.0"),
    ],
)
def test_what_it_logs(
    strategy: Strategy,  # noqa: F811
    lines: list[str],
    make: Callable[[Any, Any], Any],
    expected: str,
) -> None:
    hook = IPULoggingTensorHook(at_end=True)
    runs(hook, lambda: hook.log(make(tf.constant(42.0, name="a"), tf.constant(43.5, name="b"))), 1)
    assert lines == [expected]


def test_inside_a_loop_with_a_format(strategy: Strategy, lines: list[str]) -> None:  # noqa: F811
    given = []

    def formatter(values: dict[str, np.ndarray]) -> str:
        given.append(values["v"])
        return "formatted"

    hook = IPULoggingTensorHook(at_end=True, formatter=formatter, logging_mode=IPULoggingTensorHook.LoggingMode.ALL)

    def body(v: tf.Tensor) -> Any:
        with tf.control_dependencies([hook.log({"v": v})]):
            return v + 1

    runs(hook, lambda: ipu.loops.repeat(3, body, [1.0]), 2)
    assert lines == ["formatted"]
    np.testing.assert_array_equal(given, [[1, 2, 3, 1, 2, 3]])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"every_n_iter": 5, "every_n_secs": 5}, "Cannot provide both every_n_iter and every_n_secs"),
        ({}, "Either every_n_iter, every_n_secs or at_end should be provided"),
    ],
)
def test_wrong_times(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        IPULoggingTensorHook(**options)


def test_wrong_use() -> None:
    hook = IPULoggingTensorHook(at_end=True)
    with pytest.raises(RuntimeError, match="Did you forget to call the log function"):
        hook.begin()
    for wrong in ("foo", [1.0]):
        with pytest.raises(TypeError, match="Expected `tf.Tensor`"):
            hook.log(wrong)

    def twice() -> Any:
        hook.log(tf.constant(1.0))
        return hook.log(tf.constant(1.0))

    with (
        tf.Graph().as_default(),
        ipu.scopes.ipu_scope("/device:IPU:0"),
        pytest.raises(RuntimeError, match="log function more than once"),
    ):
        ipu.ipu_compiler.compile(twice)
