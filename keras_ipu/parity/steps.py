"""Stock Keras training steps separated into gradients and weight update, for `check_parity`.

With Keras on TensorFlow a step changes the model's variables; on JAX it is a function of their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import jax
import keras
import numpy as np
import tensorflow as tf

from keras_ipu.stock import models as keras_models

_STATE = keras_models.TRAINING_STATE


class StockTrainingSteps(Protocol):
    """Training steps of a model, as gradients and update."""

    def gradients(self, batch: Any) -> tuple[Any, list[Any]]:
        """Computes the gradients of a batch, and updates metrics and statistics.

        Returns:
            What the step logs, and the gradients that it gives the optimizer, None for a weight without.
        """
        ...

    def update(self, gradients: Sequence[Any]) -> None:
        """Updates the weights with the optimizer."""
        ...


def stock_training_steps(model: Any, batch: Any) -> StockTrainingSteps:
    """Returns the `StockTrainingSteps` of a compiled and built model, and creates all of its variables.

    Args:
        model: the model.
        batch: one of those that it will be trained on.
    """
    kind = TensorFlowSteps if keras.backend.backend() == "tensorflow" else JaxSteps
    steps: StockTrainingSteps = kind(model, batch)
    return steps


class TensorFlowSteps:
    """`StockTrainingSteps` of a model on the TensorFlow backend.

    Args:
        model: the model.
        batch: one of those that it will be trained on.
    """

    def __init__(self, model: Any, batch: Any) -> None:
        self._model = model
        self._step = tf.function(self._taken_apart)
        self._step.get_concrete_function(batch)  # makes the variables of metrics

    def gradients(self, batch: Any) -> tuple[Any, list[Any]]:
        """Implements the method of `StockTrainingSteps`."""
        logs, gradients = self._step(batch)
        return logs, gradients

    def update(self, gradients: Sequence[Any]) -> None:
        """Implements the method of `StockTrainingSteps`."""
        self._model.optimizer.apply(list(gradients), self._model.trainable_variables)

    def _taken_apart(self, batch: Any) -> tuple[Any, list[Any]]:
        found: list[Any] = []

        def keep(stock: Any, gradients: list[Any], variables: Any) -> None:
            found.extend(None if each is None else tf.convert_to_tensor(each) for each in gradients)

        with keras_models.applying(self._model.optimizer, keep):
            logs = self._model.train_step(batch)
        return logs, found


class JaxSteps:
    """`StockTrainingSteps` of a model on the JAX backend.

    Args:
        model: the model.
        batch: one of those that it will be trained on.
    """

    def __init__(self, model: Any, batch: Any) -> None:
        self._model = model
        values = values_of(model.variables)
        model.test_on_batch(*keras.utils.unpack_x_y_sample_weight(_arrays(batch)))  # makes the variables of metrics
        assign(model.variables, values)
        model.reset_metrics()
        self._step = jax.jit(self._taken_apart)

    def gradients(self, batch: Any) -> tuple[Any, list[Any]]:
        """Implements the method of `StockTrainingSteps`."""
        state = keras_models.state_of(self._model, _STATE)
        logs, after, gradients = self._step(state, _arrays(batch))
        keras_models.restore_state(self._model, dict(zip(_STATE, after, strict=True)))
        return logs, gradients

    def update(self, gradients: Sequence[Any]) -> None:
        """Implements the method of `StockTrainingSteps`."""
        weights, _, slots, _ = keras_models.state_of(self._model, _STATE)
        weights, slots = self._model.optimizer.stateless_apply(slots, list(gradients), weights)
        keras_models.restore_state(self._model, {_STATE[0]: weights, _STATE[2]: slots})

    def _taken_apart(self, state: Any, batch: Any) -> tuple[Any, Any, list[Any]]:
        found: list[Any] = []

        def keep(stock: Any, slots: list[Any], gradients: list[Any], weights: list[Any]) -> tuple[Any, Any]:
            found.extend(gradients)
            return weights, slots

        with keras_models.patch_stateless_apply(self._model.optimizer, keep):
            logs, after = self._model.train_step(state, batch)
        return logs, after, found


def values_of(variables: Sequence[Any]) -> list[np.ndarray]:
    """The values of variables."""
    return [variable.numpy() for variable in variables]


def assign(variables: Sequence[Any], values: Sequence[np.ndarray]) -> None:
    """Assigns values to variables."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _arrays(batch: Any) -> Any:
    return keras.tree.map_structure(np.asarray, batch)
