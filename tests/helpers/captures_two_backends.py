"""Trains with captured gradients on the device: with Keras on JAX in one process, on TensorFlow in another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import layers

from keras_ipu.layers import CaptureActivationGradients, CaptureUpstreamGradients
from keras_ipu.optimizers import (
    ALSGradientAccumulationOptimizer,
    ALSOptimizer,
    ALSOptimizerAdam,
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    MapGradientOptimizer,
)
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import numbers
from tests.helpers.some_ipus import ipus

BATCH, STEPS, EPOCHS = 4, 8, 2
X, Y = numbers(BATCH * STEPS, 3), numbers(BATCH * STEPS, 2, seed=1)


class Keeping(keras.optimizers.SGD):
    """Keeps a running sum of the captured gradients of its updates."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.kept = self.add_variable((BATCH, 2), name="kept")
        self.activations = self.add_variable((BATCH, 4), name="activations")

    def apply_gradients(self, grads_and_vars: Any, captured_grads: Any = None) -> Any:
        result = super().apply_gradients(grads_and_vars)
        [upstream], [activation] = captured_grads["out"], captured_grads["act_activation"]
        self.assign(self.kept, self.kept * 0.5 + upstream)
        self.assign(self.activations, self.activations * 0.5 + activation)
        return result


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.1)


def als(**settings: Any) -> ALSOptimizer:
    return ALSOptimizer(sgd(), **{"initial_loss_scaling_factor": 16, "histogram_bin_edge": 2.0, **settings})


CAPTURED: dict[str, tuple[Callable[[], Any], int, int, str]] = {
    # optimizer, micro-batches of an update by option, replicas, dtype of the layers
    "one": (Keeping, 1, 1, "float32"),
    "accumulated by option": (Keeping, 4, 1, "float32"),
    "left over": (Keeping, 4, 1, "float32"),
    "replicas": (Keeping, 1, 2, "float32"),
    "accumulated on replicas": (Keeping, 2, 2, "float32"),
    "mapped": (lambda: MapGradientOptimizer(Keeping(), lambda gradient, _: 2 * gradient), 4, 1, "float32"),
    "accumulated by optimizer": (lambda: GradientAccumulationOptimizer(Keeping(), 4), 1, 1, "float32"),
    "accumulated by optimizer on replicas": (lambda: GradientAccumulationOptimizer(Keeping(), 2), 1, 2, "float32"),
    "mean over replicas": (lambda: CrossReplicaOptimizer(Keeping()), 1, 2, "float32"),
    "als": (als, 1, 1, "float16"),
    "als, captured only": (lambda: als(captured_grads_only=True, lpf_alpha=0.5), 1, 1, "float16"),
    "als, each time": (lambda: als(update_frequency=1), 1, 1, "float16"),
    "als of Adam": (lambda: ALSOptimizerAdam(0.01, update_frequency=3, histogram_bin_edge=1.0), 1, 1, "float16"),
    "als, replicas": (lambda: als(captured_grads_only=True, update_frequency=3), 1, 2, "float16"),
    "als, accumulated by option": (als, 4, 1, "float16"),
    "als that accumulates": (lambda: ALSGradientAccumulationOptimizer(als(), 4), 1, 1, "float16"),
    "accumulated als": (lambda: GradientAccumulationOptimizer(als(captured_grads_only=True), 4), 1, 1, "float16"),
}


def captured_model(dtype: str) -> keras.Sequential:
    """A model of two layers that gradients are captured of, with the same weights in every process."""
    # Names of one's own: those that Keras gives go on counting.
    first, last = layers.Dense(4, "tanh", dtype=dtype, name="first"), layers.Dense(2, dtype=dtype, name="last")
    captures = [CaptureActivationGradients(first, tag="act"), CaptureUpstreamGradients(last, tag="out")]
    model = keras.Sequential([keras.Input((3,)), *captures], name="captured")
    for place, weight in enumerate(model.trainable_weights):
        weight.assign(0.3 * numbers(*weight.shape, seed=place))
    return model


def captured_run(name: str) -> dict[str, np.ndarray]:
    """Weights and the optimizer's variables after two epochs on the device."""
    make, count, replicas, dtype = CAPTURED[name]
    with ipus(replicas) as strategy, strategy.scope():
        model = captured_model(dtype)
        if count > 1:
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=count)
        model.compile(make(), "mse", steps_per_execution=STEPS // replicas)
        with device_work() as work:
            batches = 6 if name == "left over" else STEPS  # 4 of an update, and 2
            model.fit(X[: BATCH * batches], Y[: BATCH * batches], BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
    executions = (2 if name == "left over" else 1) * EPOCHS
    assert work.counts.executions == executions
    assert name == "left over" or work.counts.steps == EPOCHS * STEPS // replicas
    weights, slots = model.trainable_weights, model.optimizer.variables
    return {f"weight {place}": np.asarray(weight.numpy()) for place, weight in enumerate(weights)} | {
        # Their order is the same on both backends.
        f"{place} {variable.name}": np.asarray(variable.numpy())
        for place, variable in enumerate(slots)
    }
