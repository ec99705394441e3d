"""Accumulated gradients over the whole grid of replicas, micro-batches, methods and dtypes, against numpy."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod as Reduction
from ipu_tf.ops.replication_ops import replication_index
from ipu_tf.optimizers import CrossReplicaGradientAccumulationOptimizerV2
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
STEPS, SIZE, RATE = 24, 6, 0.25
REPLICAS, COUNTS = (1, 2, 4), (1, 3, 8)
DTYPES = ("float32", "float16")  # an IPU has no bfloat16: neither has the contract
CASES = tuple(itertools.product(COUNTS, Reduction, DTYPES))


def gradients(replicas: int, large: bool = False) -> np.ndarray:
    """The gradients that each replica meets in each step, `[steps, replicas, size]`, exact in either dtype."""
    numbers = np.random.default_rng(replicas).integers(-64, 64, [STEPS, replicas, SIZE]) / 32
    return (np.full_like(numbers, 40000.0) if large else numbers).astype(np.float32)


@functools.cache
def trained(replicas: int, large: bool = False) -> tuple[dict[Any, np.ndarray], dict[Any, np.ndarray]]:
    """Of each case the variable after one loop on the device, and the gradients applied, `[updates, size]`."""
    queues = {case: ipu.ipu_outfeed_queue.IPUOutfeedQueue() for case in CASES}

    def showing(case: Any, gradient: tf.Tensor, variable: tf.Variable) -> Any:
        class Showing(tf1.train.GradientDescentOptimizer):  # type: ignore[name-defined]
            def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
                pairs = list(grads_and_vars)
                with tf.control_dependencies([queues[case].enqueue(pairs[0][0])]):
                    return super().apply_gradients(pairs, *args, **kwargs)

        wrapped = CrossReplicaGradientAccumulationOptimizerV2(Showing(RATE), case[0], reduction_method=case[1])
        return wrapped.apply_gradients([(gradient, variable)])

    def body(row: tf.Tensor) -> list[Any]:
        given = row[replication_index()]
        return [showing(case, tf.cast(given, case[2]), variables[case]) for case in CASES]

    with ipus(replicas), tf.Graph().as_default(), device_work() as work:
        make = functools.partial(tf1.get_variable, shape=[SIZE], use_resource=True)
        variables = {
            case: make(f"v{number}", dtype=case[2], initializer=tf1.ones_initializer())
            for number, case in enumerate(CASES)
        }
        # Every replica takes an element of its own: each finds its row in a copy of all rows.
        rows = np.repeat(gradients(replicas, large), replicas, 0)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(rows))
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(STEPS, body, [], infeed))
        taken = {case: queue.dequeue() for case, queue in queues.items()}
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), infeed.initializer])
            session.run(run)
            values, shown = session.run([variables, taken])
    assert (work.counts.executions, work.counts.steps) == (1, STEPS)
    return values, shown


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize(("count", "method", "dtype"), CASES)
def test_every_case_is_the_sum_or_the_mean(replicas: int, count: int, method: Reduction, dtype: str) -> None:
    values, shown = trained(replicas)
    updates = gradients(replicas).astype(np.float64).reshape(STEPS // count, count, replicas, SIZE)
    combined = updates.sum(1) if method is Reduction.SUM else updates.mean(1)
    applied = combined.mean(1)
    # What is added is exact; a mean of 3 or 8, and the weights, are rounded to the dtype.
    tolerance = {"float32": 1e-6, "float16": 4e-3}[dtype]
    case = (count, method, dtype)
    per_replica = shown[case].reshape(STEPS // count, -1, SIZE)
    assert values[case].dtype == shown[case].dtype == np.dtype(dtype)
    for replica in range(replicas):
        np.testing.assert_allclose(per_replica[:, replica], applied, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(values[case], 1 - RATE * applied.sum(0), rtol=tolerance, atol=5 * tolerance)


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("method", Reduction)
def test_means_of_large_half_precision_gradients_do_not_overflow(replicas: int, count: int, method: Reduction) -> None:
    _, shown = trained(replicas, large=True)
    overflows = method is Reduction.SUM and count > 1
    wanted = 65504.0 if overflows else 40000.0
    np.testing.assert_allclose(shown[count, method, "float16"].astype(np.float64), wanted, rtol=2e-3)
    wide = 40000.0 * count if method is Reduction.SUM else 40000.0
    np.testing.assert_allclose(shown[count, method, "float32"], wide, rtol=1e-6)
