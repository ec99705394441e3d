"""Trains models on the device with Keras on JAX in one process, and with Keras on TensorFlow in another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers

from tests.helpers.keras_parity import integers, numbers
from tests.helpers.some_ipus import ipus

_FILE = "IPU_TEST_TWO_BACKENDS"


class Saved:
    """Where the first process leaves its numbers for the second."""

    def get(self) -> Path:
        """The file that the parent process named."""
        return Path(os.environ[_FILE])

    def named(self, path: Path) -> dict[str, str]:
        """The environment of a process that is to use this file."""
        return {**os.environ, _FILE: str(path), "KERAS_BACKEND": "jax"}


SAVED = Saved()
RUNS = {"plain": (1, 1, 1, 8), "split": (2, 4, 2, 12)}
"""By name: replicas, micro-batches, stages and steps per execution."""


def trained(name: str) -> dict[str, np.ndarray]:
    """Weights, losses and predictions of a model without random layers, after two epochs on the device."""
    replicas, count, stages, steps = RUNS[name]
    x, y = numbers(4 * 48, 6, 6, 2), integers(5, 4 * 48)
    with ipus(replicas * stages) as strategy, strategy.scope():
        model = _model()
        options: dict[str, Any] = {"gradient_accumulation_steps_per_replica": count}
        if stages > 1:
            model.set_pipeline_stage_assignment([0, 0, 1, 1])
            model.set_pipelining_options(**options)
        elif count > 1:
            model.set_gradient_accumulation_options(**options)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.01, clipnorm=1.0), loss, metrics=["accuracy"], steps_per_execution=steps)
        history = model.fit(x, y, 4, epochs=2, shuffle=False, verbose=0).history
        found = {f"weight {place}": weight for place, weight in enumerate(model.get_weights())}
        return {**found, "loss": np.array(history["loss"]), "predicted": model.predict(x, 4, verbose=0)}


def _model() -> keras.Model:
    """The same weights on both backends. A bias ahead of BatchNorm would have gradients of nothing but round-off."""
    parts = [layers.Conv2D(4, 3, use_bias=False), layers.BatchNormalization(), layers.Flatten(), layers.Dense(5)]
    model = keras.Sequential([keras.Input((6, 6, 2)), *parts])
    for place, weight in enumerate(model.trainable_weights):
        weight.assign(0.3 * numbers(*weight.shape, seed=place) + (place == 1))
    return model
