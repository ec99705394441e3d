"""Rows of an outfeed: their shapes and structure are those of the programs that ran, not of those that failed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.test_utils import ipu_session
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

Strategy = ipu.ipu_strategy.IPUStrategyV1
Outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue
Mode = ipu.ipu_outfeed_queue.IPUOutfeedMode


def program(body: Any) -> Any:
    """A tf.function of one tensor that returns nothing: one may not return operations."""

    def function(x: tf.Tensor) -> None:
        body(x)

    return tf.function(function, autograph=False)


def failing(outfeed: Outfeed) -> Any:
    """A program whose trace fails after it has enqueued something."""

    def body(x: tf.Tensor) -> None:
        outfeed.enqueue({"a": x[:, None]})
        raise KeyError("a mistake further down")

    return program(body)


@pytest.mark.parametrize("mode", Mode)
def test_a_program_that_could_not_be_traced_binds_no_other(strategy: Strategy, mode: Mode) -> None:  # noqa: F811
    outfeed = Outfeed(mode)
    with pytest.raises(KeyError):
        strategy.run(failing(outfeed), [tf.ones(2)])
    strategy.run(program(outfeed.enqueue), [tf.ones(2)])
    np.testing.assert_array_equal(np.ravel(outfeed.dequeue()), [1.0, 1.0])
    with pytest.raises(tf.errors.FailedPreconditionError, match="different tensor shape"):
        strategy.run(failing(outfeed), [tf.ones(2)])
    strategy.run(program(lambda x: outfeed.enqueue(x * 2)), [tf.ones(2)])
    np.testing.assert_array_equal(np.ravel(outfeed.dequeue()), [2.0, 2.0])


def test_rows_that_wait_keep_their_structure(strategy: Strategy) -> None:  # noqa: F811
    outfeed = Outfeed()
    pair = program(lambda x: outfeed.enqueue((x, x + 1)))
    named = program(lambda x: outfeed.enqueue({"a": x, "b": -x}))
    strategy.run(pair, [tf.constant(1.0)])
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"another structure.*: \(TensorSpec.*Received: \{'a'"):
        strategy.run(named, [tf.constant(1.0)])
    found = outfeed.dequeue()
    assert isinstance(found, tuple) and [each.numpy().tolist() for each in found] == [[1.0], [2.0]]
    strategy.run(named, [tf.constant(3.0)])
    assert {name: each.numpy().tolist() for name, each in outfeed.dequeue().items()} == {"a": [3.0], "b": [-3.0]}


def test_programs_that_were_built_before_any_ran_do_not_mix_rows(strategy: Strategy) -> None:  # noqa: F811
    outfeed, steps = Outfeed(), []
    for rows in (tf.ones, lambda shape: tf.ones([1, *shape])):
        with tf.Graph().as_default() as graph, ipu.scopes.ipu_scope("/device:IPU:0"):
            steps.append((graph, ipu.ipu_compiler.compile(lambda rows=rows: outfeed.enqueue(rows([2])))))
    (first_graph, first), (second_graph, second) = steps
    with second_graph.as_default(), ipu_session() as session:
        session.run(second)
    refused = pytest.raises(tf.errors.FailedPreconditionError, match=r"It has float32\[1, 2\]. Received: float32\[2\]")
    with first_graph.as_default(), ipu_session() as session, refused:
        session.run(first)
    np.testing.assert_array_equal(outfeed.dequeue(), [[[1.0, 1.0]]])
