"""Gradient accumulation and its optimizers, against one big batch in plain TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._training.accumulation import accumulation_scope
from ipu_tf.gradient_accumulation import GradientAccumulationReductionMethod
from ipu_tf.ops import op_util
from ipu_tf.optimizers import (
    CrossReplicaGradientAccumulationOptimizer,
    CrossReplicaGradientAccumulationOptimizerV2,
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    GradientAccumulationOptimizerV2,
)
from tests.helpers.device_counts import device_work
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1
STEPS = 24
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: tf1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf1.train.MomentumOptimizer(0.1, 0.9),
    "adam": lambda: tf1.train.AdamOptimizer(0.05),
    "rmsprop": lambda: tf1.train.RMSPropOptimizer(0.01, momentum=0.5),
}


def data_for(replicas: int) -> np.ndarray:
    return np.random.default_rng(replicas).normal(size=(STEPS * replicas, 8, 4)).astype(np.float32)


def weights() -> tuple[tf.Variable, tf.Variable]:
    start = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    with tf1.variable_scope("model", reuse=tf1.AUTO_REUSE, use_resource=True):
        return tf1.get_variable("w", initializer=start), tf1.get_variable("step", initializer=0, trainable=False)


def loss_of(x: tf.Tensor, w: tf.Variable) -> tf.Tensor:
    return tf.reduce_mean(tf.tanh(x @ w) ** 2, [-2, -1])


def trained(wrapped: Callable[[], Any], replicas: int) -> dict[str, np.ndarray]:
    """Every variable after two executions of a loop of `STEPS` iterations on the device."""
    with ipus(replicas), tf.Graph().as_default(), device_work() as work:
        queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(data_for(replicas)).repeat())

        def body(x: tf.Tensor) -> tf.Operation:
            w, step = weights()
            return wrapped().minimize(loss_of(x, w), global_step=step)

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(STEPS, body, [], queue))
        with tf1.Session() as session:
            session.run([tf1.global_variables_initializer(), queue.initializer])
            session.run(run)
            session.run(run)
            values = {variable.name: session.run(variable) for variable in tf1.global_variables()}
    assert (work.counts.executions, work.counts.steps) == (2, 2 * STEPS)
    return values


def expected(make: Callable[[], Any], replicas: int, count: int, method: str) -> dict[str, np.ndarray]:
    """The same in plain TensorFlow: one step for the samples of each update, averaged over the replicas."""
    with tf.Graph().as_default():
        x = tf1.placeholder(tf.float32, [None, 8, 4])
        w, step = weights()
        total = tf.reduce_sum(loss_of(x, w)) / replicas / (1 if method == "SUM" else count)
        train = make().minimize(total, global_step=step)
        with tf1.Session() as session:
            session.run(tf1.global_variables_initializer())
            for samples in np.split(np.tile(data_for(replicas), (2, 1, 1)), 2 * STEPS // count):
                session.run(train, {x: samples})
            return {variable.name: session.run(variable) for variable in tf1.global_variables()}


def assert_same(given: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert set(given) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(given[name], value, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("replicas", [1, 2, 4])
@pytest.mark.parametrize(("count", "method"), [(1, "SUM"), (3, "SUM"), (8, "MEAN"), (3, "RUNNING_MEAN")])
def test_accumulation_and_replicas_do_not_change_the_numbers(replicas: int, count: int, method: str) -> None:
    def wrapped() -> Any:
        return CrossReplicaGradientAccumulationOptimizerV2(OPTIMIZERS["momentum"](), count, reduction_method=method)

    assert_same(trained(wrapped, replicas), expected(OPTIMIZERS["momentum"], replicas, count, method))


@pytest.mark.parametrize("name", ["sgd", "adam", "rmsprop"])
def test_with_every_optimizer(name: str) -> None:
    def wrapped() -> Any:
        return CrossReplicaGradientAccumulationOptimizerV2(OPTIMIZERS[name](), 4, reduction_method="mean")

    assert_same(trained(wrapped, 2), expected(OPTIMIZERS[name], 2, 4, "MEAN"))


@pytest.mark.parametrize(
    "wrapper",
    [
        lambda opt: GradientAccumulationOptimizerV2(CrossReplicaOptimizer(opt), 3),
        lambda opt: CrossReplicaGradientAccumulationOptimizer(opt, 3),
    ],
)
def test_the_other_ways_to_say_it(wrapper: Callable[[Any], Any]) -> None:
    given = trained(lambda: wrapper(OPTIMIZERS["momentum"]()), 2)
    assert_same(given, expected(OPTIMIZERS["momentum"], 2, 3, "SUM"))


def test_without_accumulation_replicas_are_averaged() -> None:
    given = trained(lambda: CrossReplicaOptimizer(OPTIMIZERS["adam"]()), 4)
    assert_same(given, expected(OPTIMIZERS["adam"], 4, 1, "SUM"))


@pytest.mark.parametrize("dtype", [tf.float16, lambda variable: tf.float16, None])
def test_gradients_have_the_dtype_of_their_accumulator(dtype: Any) -> None:
    seen: list[tf.DType] = []

    class Looking(tf1.train.GradientDescentOptimizer):  # type: ignore[name-defined]
        def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            pairs = list(grads_and_vars)
            seen.extend(gradient.dtype for gradient, _ in pairs)
            return super().apply_gradients([(tf.cast(g, tf.float32), v) for g, v in pairs], *args, **kwargs)

    trained(lambda: GradientAccumulationOptimizerV2(Looking(0.1), 2, dtype=dtype), 1)
    assert set(seen) == {tf.float32 if dtype is None else tf.float16}


def test_what_is_accumulated_shows_once_an_update() -> None:
    queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()

    class Showing(tf1.train.GradientDescentOptimizer):  # type: ignore[name-defined]
        def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            pairs = list(grads_and_vars)
            with tf.control_dependencies([queue.enqueue([gradient for gradient, _ in pairs])]):
                return super().apply_gradients(pairs, *args, **kwargs)

    trained(lambda: GradientAccumulationOptimizerV2(Showing(0.0), 8), 1)
    (gradients,) = queue.dequeue()
    assert gradients.shape == (2 * STEPS // 8, 4, 3)


def shows_line(error: tf.errors.OpError, line: str) -> bool:
    """Whether a message has a line of this file's functions `body`, as in a traceback."""
    shown = rf'File "{re.escape(__file__)}", line \d+, in body\n +{re.escape(line)}'
    return re.search(shown, error.message) is not None


@pytest.mark.parametrize("count", [5, 16])
def test_a_count_that_does_not_divide_the_loop_is_refused(count: int) -> None:
    wanted = f"accumulation operation with {count} number of mini batches inside a loop with {STEPS} iterations"
    with pytest.raises(tf.errors.FailedPreconditionError, match=wanted) as raised:
        trained(lambda: GradientAccumulationOptimizerV2(OPTIMIZERS["sgd"](), count), 1)
    assert shows_line(raised.value, "return wrapped().minimize(")


def test_accumulation_outside_of_a_loop_is_refused() -> None:
    with ipus(1), tf.Graph().as_default():

        def step(x: tf.Tensor) -> tf.Operation:
            return GradientAccumulationOptimizerV2(OPTIMIZERS["sgd"](), 2).minimize(loss_of(x, weights()[0]))

        x = tf.constant(data_for(1)[0])
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(step, [x])
        with tf1.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="not inside a training"):
            session.run(tf1.global_variables_initializer())
            session.run(run)


def test_a_loop_of_unknown_length_is_refused() -> None:
    with ipus(1), tf.Graph().as_default():

        def body(total: tf.Tensor) -> Any:
            w, _ = weights()
            train = GradientAccumulationOptimizerV2(OPTIMIZERS["sgd"](), 2).minimize(loss_of(data_for(1)[0], w))
            return [total + tf.reduce_sum(w) ** 2 + 1.0, train]

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            run = ipu.ipu_compiler.compile(lambda: ipu.loops.while_loop(lambda total: total < 10.0, body, [0.0]))
        with (
            tf1.Session() as session,
            pytest.raises(tf.errors.FailedPreconditionError, match="runtime num mini batches") as raised,
        ):
            session.run(tf1.global_variables_initializer())
            session.run(run)
        assert shows_line(raised.value, "train = GradientAccumulationOptimizerV2(")


@pytest.mark.parametrize("kind", [GradientAccumulationOptimizerV2, GradientAccumulationOptimizer])
def test_a_count_below_one_is_refused(kind: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="num_mini_batches must be a positive number"):
        kind(OPTIMIZERS["sgd"](), 0)


def test_sharded_state_that_is_not_offloaded_is_refused() -> None:
    with pytest.raises(ValueError, match="optimizer state must be offloaded"):
        GradientAccumulationOptimizerV2(OPTIMIZERS["sgd"](), 2, False, True)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="Cannot parse MEDIAN as one of.*SUM, MEAN, RUNNING_MEAN"):
        GradientAccumulationReductionMethod.parse("MEDIAN")


def test_the_older_optimizer_takes_gradient_descent_only() -> None:
    with pytest.raises(ValueError, match="GradientDescentOptimizer and MomentumOptimizer.*Received: AdamOptimizer"):
        GradientAccumulationOptimizer(OPTIMIZERS["adam"](), 2)


def test_a_keras_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="Should use optimizer in keras.ipu.optimizers"):
        GradientAccumulationOptimizerV2(tf.keras.optimizers.SGD(), 2)


def test_the_parts_that_optimizers_are_made_of() -> None:
    """`op_util`'s accumulation and update, in a loop of their own, against the sums."""
    with ipus(1) as strategy:
        total, updates = tf.Variable(0.0), tf.Variable(0)

        @tf.function
        def program(steps: tf.Tensor) -> None:
            for step in tf.range(steps):
                with accumulation_scope(4):
                    gradient = tf.cast(step, tf.float16)
                    [(summed, _)] = op_util.accumulate_gradients([(gradient, total)], None, grad_scale=2.0)

                def update(count: int, summed: tf.Tensor = summed) -> list[tf.Tensor]:
                    return [total.assign_add(summed), updates.assign_add(count)]

                op_util.create_resource_update(update, "update", [], None, False, 4)

        strategy.run(program, [tf.constant(8)])
        assert (float(total.numpy()), int(updates.numpy())) == (2.0 * sum(range(8)), 8)


def test_an_accumulator_that_is_scaled_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="accum_scale=0.5"):
        op_util.accumulate_gradients([], None, accum_scale=0.5)


@pytest.mark.parametrize("scale", [1, np.float32(1.0), np.float16(1.0), tf.constant(1.0)], ids=repr)
def test_an_accumulator_that_is_kept_may_be_asked_for_by_any_number(scale: Any) -> None:
    assert op_util.accumulate_gradients([], None, accum_scale=scale) == []
