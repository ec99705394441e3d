"""`tf.random.stateless_*` and `tf.random.Generator` draw on the device what TensorFlow's CPU kernels draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ipu_tf as ipu
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy
from tests.helpers.some_ipus import ipus

__all__ = ["strategy"]

tf1 = tf.compat.v1
LOGITS = np.random.default_rng(0).normal(0, 3, (3, 40)).astype(np.float32)
IMPOSSIBLE = np.where(np.arange(40) % 3 == 0, -np.inf, LOGITS).astype(np.float32)

EXACT: dict[str, Callable[[Any], Any]] = {
    "uniform": lambda seed: tf.random.stateless_uniform([7, 33], seed),
    "uniform of no dimension": lambda seed: tf.random.stateless_uniform([], seed),
    "uniform, float16": lambda seed: tf.random.stateless_uniform([33], seed, dtype=tf.float16),
    "uniform, bfloat16": lambda seed: tf.random.stateless_uniform([33], seed, dtype=tf.bfloat16),
    "uniform, Philox": lambda seed: tf.random.stateless_uniform([33], seed, alg="philox"),
    "a computed shape": lambda seed: tf.random.stateless_uniform(tf.shape(LOGITS)[1:] * 2, seed),
    "dropout": lambda seed: tf.nn.experimental.stateless_dropout(tf.ones([9, 30]), 0.3, seed),
    "classes": lambda seed: tf.random.stateless_categorical(LOGITS, 25, seed),
    "classes, int32": lambda seed: tf.random.stateless_categorical(LOGITS, 1, seed, tf.int32),
    "impossible classes": lambda seed: tf.random.stateless_categorical(IMPOSSIBLE, 25, seed),
}
TO_ROUNDING: dict[str, Callable[[Any], Any]] = {
    "uniform in a range": lambda seed: tf.random.stateless_uniform([33], seed, -2, 5),
    "normal": lambda seed: tf.random.stateless_normal([5, 33], seed),
    "normal of no dimension": lambda seed: tf.random.stateless_normal([], seed, 1.0, 2.0),
    "normal, a computed shape": lambda seed: tf.random.stateless_normal(tf.shape(LOGITS)[1:] - 1, seed),
}
SEEDS = [(0, 0), (7, 9), (2**31 - 1, 12345)]


def _both(strategy: Any, draw: Callable[[Any], Any], seed: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns what the device draws, and what TensorFlow's CPU kernels draw."""
    given = tf.constant(seed, tf.int32)
    with device_work() as did:
        ours = strategy.run(tf.function(draw, autograph=False), (given,))
    assert did.counts.executions == 1
    stock = draw(given)
    assert ours.dtype == stock.dtype
    return ours.numpy(), stock.numpy()


@pytest.mark.parametrize("seed", SEEDS, ids=str)
@pytest.mark.parametrize("draw", EXACT.values(), ids=EXACT)
def test_same_bits(strategy: Any, draw: Callable[[Any], Any], seed: tuple[int, int]) -> None:
    ours, stock = _both(strategy, draw, seed)
    assert ours.tobytes() == stock.tobytes()


@pytest.mark.parametrize("seed", SEEDS, ids=str)
@pytest.mark.parametrize("draw", TO_ROUNDING.values(), ids=TO_ROUNDING)
def test_same_numbers(strategy: Any, draw: Callable[[Any], Any], seed: tuple[int, int]) -> None:
    ours, stock = _both(strategy, draw, seed)
    np.testing.assert_allclose(ours, stock, rtol=1e-5, atol=3e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.tuples(*[st.integers(0, 2**31 - 1)] * 2), classes=st.integers(1, 3000), scale=st.floats(0.1, 20))
def test_stateless_categorical_is_stock_tensorflows(seed: tuple[int, int], classes: int, scale: float) -> None:
    logits = np.random.default_rng(classes).normal(0, scale, (1, classes)).astype(np.float32)
    with ipus(1):
        ours, stock = _both(
            ipu.ipu_strategy.IPUStrategy(), lambda seed: tf.random.stateless_categorical(logits, 20, seed), seed
        )
    assert ours.tolist() == stock.tolist()


def test_a_generator_in_a_step_draws_on(strategy: Any) -> None:
    ours, stock = (tf.random.Generator.from_seed(3) for _ in range(2))
    step = tf.function(lambda: (ours.uniform([5]), ours.normal([4])))
    for _ in range(2):
        uniform, normal = strategy.run(step)
        assert uniform.numpy().tobytes() == stock.uniform([5]).numpy().tobytes()
        np.testing.assert_allclose(normal, stock.normal([4]), rtol=1e-5, atol=3e-6)


def test_in_a_graph_of_tensorflow_1() -> None:
    draw = EXACT["uniform"]
    with tf.Graph().as_default(), tf1.Session() as session, ipus(1), device_work() as did:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            [compiled] = ipu.ipu_compiler.compile(lambda: draw(tf.constant([7, 9])))
            placed = draw(tf.constant([7, 9]))
        ours = session.run([compiled, placed])
    assert did.counts.executions == 2
    stock = draw(tf.constant([7, 9])).numpy()
    assert [each.tobytes() for each in ours] == [stock.tobytes()] * 2


def test_tensorflows_own_xla_keeps_its_numbers(strategy: Any) -> None:
    """Outside of programs nothing changes: compiled for the host, TensorFlow draws XLA's numbers."""
    seed = tf.constant([7, 9])
    compiled = tf.function(EXACT["uniform"], autograph=False, jit_compile=True)
    assert not np.array_equal(compiled(seed), EXACT["uniform"](seed))
    with strategy.scope():
        again = tf.function(EXACT["uniform"], autograph=False, jit_compile=True)
        assert np.array_equal(again(seed), compiled(seed))
