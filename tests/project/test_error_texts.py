"""Error texts of the interface contract that no other test raises, and replacements of those that cannot occur."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.ops import within_replica_ops
from ipu_tf.ops.pipelining_ops import OptimizerFunctionOutput, PipelineStageOptions, pipeline
from ipu_tf.optimizers import GradientAccumulationOptimizerV2
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
X, Y = np.ones((32, 4), np.float32), np.ones((32, 2), np.float32)


def stage_options(**options: Any) -> PipelineStageOptions:
    return PipelineStageOptions(**options)


def sharded(*values: Any) -> Any:
    return within_replica_ops.all_reduce([tf.constant(value) for value in values], "COLLECTIVE_OP_ADD")


def pipeline_without_variables() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with ipus(2) as strategy:

        def trains(loss: tf.Tensor) -> OptimizerFunctionOutput:
            return OptimizerFunctionOutput(keras.optimizers.SGD(), loss)

        stages: list[Callable[..., tf.Tensor]] = [lambda: tf.constant(1.0), lambda x: x * 2.0]
        program = lambda: pipeline(stages, 4, optimizer_function=trains, outfeed_queue=queue) and None  # noqa: E731
        strategy.run(tf.function(program, autograph=False))


def groups_of_batch_norm(size: int, count: int) -> float:
    """Runs a program on so many replicas, with groups of this size configured."""
    with ipus(count, norm_group=size) as strategy:
        return float(strategy.run(tf.function(lambda: tf.constant(1.0) + 1.0)))


def fitted(steps_per_execution: int, x: Any = X, y: Any = Y) -> None:
    with ipus(4) as strategy, strategy.scope():
        model = keras.Sequential([keras.layers.Dense(2)])
        model.compile("sgd", "mse", steps_per_execution=steps_per_execution)
        model.fit(x, y, batch_size=2, verbose=0)


def on_the_cpu() -> None:
    with ipus(1), ipu.ipu_strategy.IPUStrategy("/device:CPU:0").scope():
        model = keras.Sequential([keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        model.fit(X, Y, verbose=0)


TABLE: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "PipelineStageOptions.convolution_options must be dictionary.": (
        lambda: stage_options(convolution_options=[1]),
        TypeError,
    ),
    "PipelineStageOptions.matmul_options must be dictionary.": (lambda: stage_options(matmul_options=1), TypeError),
    "PipelineStageOptions.slice_options must be dictionary.": (lambda: stage_options(slice_options="a"), TypeError),
    "input_shards should not contain any duplicate entries.": (
        lambda: within_replica_ops.all_gather([tf.constant([1.0])] * 2),
        ValueError,
    ),
    "Expected tensors to all be of the same type.": (lambda: sharded([1.0], [1]), ValueError),
    "Expected tensors to all be of the same rank.": (lambda: sharded([1.0], [[1.0]]), ValueError),
    "No variables to optimize. When using OptimzerV2, OptimizerFunctionOutput must contain a list of variables or a "
    "GradientTape.": (pipeline_without_variables, RuntimeError),
    "The number of replicas (4) must be divisible by distributed_batch_norm_replica_group_size (3).": (
        lambda: groups_of_batch_norm(3, 4),
        tf.errors.InternalError,
    ),
    "The number of replicas (1) must be divisible by distributed_batch_norm_replica_group_size (2).": (
        lambda: groups_of_batch_norm(2, 1),
        tf.errors.InternalError,
    ),
    "`steps_per_execution` (3) must be a divisor of the number of batches (4) in the dataset provided to this "
    "replica.": (lambda: fitted(3), ValueError),
    # The second of these two stands for "Expect x to be a non-empty array or dataset.": no data has no step to run.
    "The provided dataset contains 3 items, but all 4 replicas are requested to run 1 steps each. Make sure the "
    "dataset contains at least 4 items.": (lambda: fitted(1, X[:6], Y[:6]), ValueError),
    "The provided dataset contains 0 items, but all 4 replicas are requested to run 1 steps each. Make sure the "
    "dataset contains at least 4 items.": (lambda: fitted(1, X[:0], Y[:0]), ValueError),
    # For "<class> can only be used on an IPU device.": a strategy for another device runs no model.
    "Wanted an IPU device such as '/device:IPU:0'. Received: '/device:CPU:0'.": (on_the_cpu, ValueError),
}


@pytest.mark.usefixtures("graphcore_rules")
@pytest.mark.parametrize("text", TABLE)
def test_an_error_quoted_from_graphcore_is_raised(text: str) -> None:
    program, error = TABLE[text]
    with pytest.raises(error, match=re.escape(text)):
        program()


@pytest.mark.parametrize(("size", "count"), [(1, 4), (2, 4), (4, 4), (1, 1)])
def test_groups_of_batch_norm_that_divide_the_replicas(size: int, count: int) -> None:
    assert groups_of_batch_norm(size, count) == 2.0


def test_a_pipeline_gives_nothing_that_could_have_a_gradient() -> None:
    """For "Attempting to calculate the gradient of a Pipeline which is not allowed": TensorFlow refuses sooner."""
    with ipus(2), tf.Graph().as_default():
        weight = tf1.get_variable("w", initializer=1.0, use_resource=True)
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        operation = pipeline([lambda: weight * 2.0, lambda x: x], 4, outfeed_queue=queue)
        with pytest.raises(TypeError, match="can't convert Operation '.*' to Tensor"):
            tf.gradients(operation, weight)


def test_what_an_update_changed_can_be_used_in_the_same_iteration() -> None:
    """For "... it must not be wrapped by any other optimizer": such wrappers have the numbers they should have."""
    steps, count, rate, decay = 12, 3, 0.5, 0.75
    with ipus(1), tf.Graph().as_default(), device_work() as work:
        weight = tf1.get_variable("w", initializer=2.0, use_resource=True)

        class Decaying(tf1.train.Optimizer):  # type: ignore[name-defined]
            """Shrinks weights after every call of the optimizer it wraps."""

            def __init__(self, wrapped: Any) -> None:
                super().__init__(False, "Decaying")
                self._wrapped = wrapped

            def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Any = None) -> Any:
                with tf.control_dependencies([self._wrapped.apply_gradients(grads_and_vars, global_step)]):
                    return weight.assign(weight * decay).op

        def body() -> tf.Operation:
            inner = tf1.train.GradientDescentOptimizer(rate)
            return Decaying(GradientAccumulationOptimizerV2(inner, count)).minimize(weight * weight)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(steps, body, []))
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            session.run(run)
            given = session.run(weight)
    value, total = 2.0, 0.0
    for step in range(1, steps + 1):
        total += 2 * value
        if step % count == 0:
            value, total = value - rate * total, 0.0
        value *= decay
    np.testing.assert_allclose(given, value, rtol=1e-6)
    assert work.counts.steps == steps


@pytest.mark.parametrize("stages", [1, 2])
def test_pipelined_batch_normalisation_has_its_moving_statistics(stages: int) -> None:
    """For the warning "... are not properly updated when training": here they are, whether pipelined or not."""

    def build() -> keras.Model:
        keras.utils.set_random_seed(3)
        parts = [keras.layers.Dense(3), keras.layers.BatchNormalization(momentum=0.5), keras.layers.Dense(2)]
        return keras.Sequential([keras.Input((4,)), *parts])

    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    with ipus(stages) as strategy, strategy.scope():
        model = build()
        if stages == 2:
            model.set_pipeline_stage_assignment([0, 1, 1])
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=8)
        model.compile(keras.optimizers.SGD(0.0), "mse", steps_per_execution=8)
        model.fit(x, Y, batch_size=4, shuffle=False, verbose=0)
        given = [weight.numpy() for weight in model.layers[1].weights]
    stock = build()
    stock.compile(keras.optimizers.SGD(0.0), "mse", jit_compile=False)
    stock.fit(x, Y, batch_size=4, shuffle=False, verbose=0)
    for one, other in zip(given, stock.layers[1].weights, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=1e-6)
