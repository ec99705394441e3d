"""Optimizers that wrap others: against the wrapped one, and gradients changed by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.optimizers.map_gradient_optimizer import MapGradientOptimizerInvertedChaining
from tests.helpers.device_counts import device_work
from tests.helpers.one_ipu import strategy  # noqa: F401 - a fixture

tf1 = tf.compat.v1
Strategy = ipu.ipu_strategy.IPUStrategyV1
IpuOptimizer = ipu.optimizers.IpuOptimizer
MapGradientOptimizer = ipu.optimizers.MapGradientOptimizer


def momentum() -> Any:
    """An optimizer with slots."""
    return tf1.train.MomentumOptimizer(0.1, 0.9)


def clipped(gradient: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """A gradient changed, with regard to the variable."""
    return tf.clip_by_value(gradient, -0.5, 0.5) + 0.1 * value


class Clipping(tf.compat.v1.train.MomentumOptimizer):
    """Changes gradients as `clipped`, without wrapping."""

    def compute_gradients(self, *args: Any, **kwargs: Any) -> Any:
        """The changed gradients."""
        return [(clipped(g, v.value()), v) for g, v in super().compute_gradients(*args, **kwargs)]


WAYS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "plain": (lambda: IpuOptimizer(momentum()), momentum),
    "sharded": (lambda: ipu.optimizers.ShardedOptimizer(momentum()), momentum),
    "twice": (lambda: IpuOptimizer(ipu.optimizers.ShardedOptimizer(momentum())), momentum),
    "mapped": (lambda: MapGradientOptimizer(momentum(), clipped), lambda: Clipping(0.1, 0.9)),
    "mapped late": (lambda: MapGradientOptimizerInvertedChaining(momentum(), clipped), lambda: Clipping(0.1, 0.9)),
}


def weights_after(optimizer: Callable[[], Any], on_device: bool) -> list[np.ndarray]:
    """The weights, a step counter among them, after four steps."""
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [4, 3])

        def step(x: tf.Tensor) -> Any:
            with tf1.variable_scope("model", use_resource=True):
                w = tf1.get_variable("w", initializer=np.ones((3, 2), np.float32))
                b = tf1.get_variable("b", initializer=np.zeros(2, np.float32))
                steps = tf1.get_variable("steps", initializer=0, trainable=False)
            loss = tf.reduce_sum(tf.square(x @ w + b))
            return optimizer().minimize(loss, global_step=steps)

        if on_device:
            with ipu.scopes.ipu_scope("/device:IPU:0"):
                train = ipu.ipu_compiler.compile(step, [x])
        else:
            train = step(x)
        session.run(tf1.global_variables_initializer())
        rng = np.random.default_rng(0)
        for _ in range(4):
            session.run(train, {x: rng.normal(size=(4, 3))})
        return list(session.run(tf1.global_variables()))


@pytest.mark.parametrize("way", WAYS)
def test_training(strategy: Strategy, way: str) -> None:  # noqa: F811
    mine, stock = WAYS[way]
    with device_work() as work:
        found = weights_after(mine, on_device=True)
    wanted = weights_after(stock, on_device=False)
    assert len(found) == len(wanted) == 5
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    assert work.counts.executions == 4


def test_what_the_wrapped_optimizer_has() -> None:
    with tf.Graph().as_default():
        w = tf1.get_variable("w", [2], use_resource=True)
        wrapped = momentum()
        optimizer = IpuOptimizer(wrapped, "mine")
        optimizer.apply_gradients([(tf.ones([2]), w)])
        assert optimizer.get_name() == "Momentum"
        assert optimizer.get_slot_names() == ["momentum"]
        assert optimizer.get_slot(w, "momentum") is wrapped.get_slot(w, "momentum")
        assert optimizer.variables() == wrapped.variables()
        assert len(optimizer.variables()) == 1


def test_variables_without_a_gradient_are_left_alone() -> None:
    calls = []

    def mapping(gradient: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
        calls.append(value)
        return gradient

    with tf.Graph().as_default():
        used, unused = (tf1.get_variable(name, [2], use_resource=True) for name in ("used", "unused"))
        optimizer = MapGradientOptimizer(momentum(), mapping)
        pairs = optimizer.compute_gradients(tf.reduce_sum(used * used), [used, unused])
    assert [gradient is None for gradient, _ in pairs] == [False, True]
    assert len(calls) == 1


def test_a_keras_optimizer() -> None:
    with pytest.raises(ValueError, match=r"Should use optimizer in keras\.ipu\.optimizers \(in the Keras package\)"):
        IpuOptimizer(tf.keras.optimizers.SGD())


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "V2": lambda opt: ipu.optimizers.GradientAccumulationOptimizerV2(opt, 2),
    "V1": lambda opt: ipu.optimizers.GradientAccumulationOptimizer(opt, 2),
    "replicas": lambda opt: ipu.optimizers.CrossReplicaGradientAccumulationOptimizerV2(opt, 2),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_accumulation_for_variables_of_tensorflow_2(strategy: Strategy, name: str) -> None:  # noqa: F811
    def trained(optimizer: Any, run: Callable[[Any], Any], steps: int, factor: float) -> np.ndarray:
        weights = tf.Variable([1.0, -2.0])

        @tf.function
        def train() -> None:
            for _ in tf.range(steps):
                with tf.GradientTape() as tape:
                    loss = factor * tf.reduce_sum(weights * weights)
                optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])

        run(train)
        return np.array(weights.numpy())

    with device_work() as work:
        found = trained(WRAPPERS[name](momentum()), strategy.run, 6, 1.0)
    assert work.counts.executions == 1
    np.testing.assert_allclose(found, trained(momentum(), lambda train: train(), 3, 2.0), rtol=1e-5, atol=1e-6)
