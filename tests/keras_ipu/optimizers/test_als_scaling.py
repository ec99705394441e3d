"""Automatic loss scaling in models of mixed_float16, with gradients that are clipped, and with settings that change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_ipu.optimizers import (
    ALSGradientAccumulationOptimizer,
    ALSOptimizer,
    ALSOptimizerSGD,
    CrossReplicaOptimizer,
)
from tests.helpers.keras_parity import ipu_scope
from tests.helpers.some_ipus import ipus
from tests.keras_ipu.optimizers.test_als import PAIRS

X, Y = np.full((8, 2), 0.5, np.float32), np.ones((8, 1), np.float32)
WRAPPERS: dict[str, Callable[[], Any]] = {
    "als": lambda: ALSOptimizer(keras.optimizers.SGD(0.5), initial_loss_scaling_factor=1024),
    "specialised": lambda: ALSOptimizerSGD(0.5, initial_loss_scaling_factor=1024),
    "wrapped": lambda: CrossReplicaOptimizer(ALSOptimizer("sgd", initial_loss_scaling_factor=1024)),
}


@pytest.fixture
def mixed_float16() -> Iterator[None]:
    """Models have the policy mixed_float16."""
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def trained(optimizer: Any, *further: Any, **named: Any) -> keras.Model:
    """A model of one layer after one step."""
    dense = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((2,)), dense])
    model.compile(optimizer, "mse", *further, **named)
    model.fit(X, Y, batch_size=8, verbose=0)
    return model


@pytest.mark.usefixtures("mixed_float16")
@pytest.mark.parametrize("name", WRAPPERS)
@pytest.mark.parametrize("by_place", [False, True])
def test_a_loss_is_scaled_once(name: str, by_place: bool) -> None:
    """By the optimizer that is given, and not by Keras's as well, whose scale the other would take for its own."""
    optimizer = WRAPPERS[name]()
    stock = trained(keras.optimizers.SGD(float(optimizer.learning_rate)))
    assert isinstance(stock.optimizer, keras.optimizers.LossScaleOptimizer)
    further = (None, None, None, False, 1, "auto", True) if by_place else ()
    with ipus(1), ipu_scope():
        model = trained(optimizer, *further)
    assert model.optimizer is optimizer
    np.testing.assert_allclose(model.get_weights()[0], stock.get_weights()[0], rtol=1e-2)


@pytest.mark.usefixtures("mixed_float16")
def test_a_loaded_model_has_its_loss_scaled_once() -> None:
    with ipus(1), ipu_scope():
        model = trained(WRAPPERS["als"]())
        again = type(model).from_config(model.get_config())
        again.compile_from_config(model.get_compile_config())
    assert type(again.optimizer) is ALSOptimizer


def test_two_scales_of_a_loss_are_refused() -> None:
    scaling = keras.optimizers.LossScaleOptimizer
    with ipus(1), ipu_scope():
        with pytest.raises(ValueError, match="Received: a LossScaleOptimizer around ALSOptimizer. Give `compile` the"):
            trained(scaling(CrossReplicaOptimizer(ALSOptimizer("sgd"))))
        # The other way round each divides by the scale that it has put in.
        weights = trained(ALSOptimizer(scaling(keras.optimizers.SGD(0.5)), initial_loss_scaling_factor=8)).get_weights()
    np.testing.assert_allclose(weights[0], trained(keras.optimizers.SGD(0.5)).get_weights()[0], rtol=1e-5)


def test_loss_scaling_replaces_that_of_an_optimizer_within_a_wrapper() -> None:
    found = []
    for wrap in (lambda optimizer: optimizer, CrossReplicaOptimizer):
        inner = keras.optimizers.SGD(0.1, loss_scale_factor=8.0)
        optimizer = keras.optimizers.LossScaleOptimizer(wrap(inner), initial_scale=4.0)
        variable = keras.Variable([1.0])
        optimizer.build([variable])
        optimizer.apply([optimizer.scale_loss(tf.constant([1.0]))], [variable])
        found.append(float(variable[0]))
    assert found[1] == found[0] == pytest.approx(0.9)


@pytest.mark.parametrize("bound", ["clipnorm", "global_clipnorm", "clipvalue"])
@pytest.mark.parametrize("name", PAIRS)
def test_bounds_are_those_of_gradients_that_are_not_scaled(name: str, bound: str) -> None:
    specialised, stock = PAIRS[name]
    found = []
    for optimizer in (specialised(initial_loss_scaling_factor=1024), stock()):
        setattr(optimizer, bound, 0.5)
        assert getattr(optimizer, bound) == 0.5
        variables = [keras.Variable([1.0, -2.0]), keras.Variable([3.0])]
        for step in range(4):
            scale = float(getattr(optimizer, "loss_scaling_factor", 1.0))
            optimizer.apply([tf.constant([0.1, -0.2]) * scale * step, tf.constant([0.3]) * scale * step**2], variables)
        found.append(np.concatenate([variable.numpy() for variable in variables]))
    np.testing.assert_allclose(found[0], found[1], rtol=2e-5)


def test_settings_are_changed_through_the_accumulating_optimizer() -> None:
    als = ALSOptimizer(keras.optimizers.SGD(0.1))
    optimizer = ALSGradientAccumulationOptimizer(als, 2)
    optimizer.update_frequency = 1
    assert optimizer.update_frequency == als.update_frequency == als.settings.update_frequency == 1
    for name, value, text in (
        ("update_frequency", 0, "update_frequency must be nonzero"),
        ("histogram", 1, "histogram is a read only property"),
        ("decrease_factor", 1, "decrease_factor is a read only property"),
    ):
        with pytest.raises(ValueError, match=text):
            setattr(optimizer, name, value)
    optimizer.of_its_own = 3
    assert not hasattr(als, "of_its_own")
