"""Layers that capture gradients, and how the gradients reach the optimizer.

Run with Keras on TensorFlow here, on JAX by `test_keras_on_jax.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from ipu_tf.eager.backprop import GradientCaptureContext, num_gradient_collection_tapes
from keras_ipu.layers import CaptureActivationGradients, CaptureUpstreamGradients
from keras_ipu.optimizers import ALSOptimizer, GradientAccumulationOptimizer
from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import numbers
from tests.helpers.layer_gradients import gradients_of
from tests.helpers.one_ipu import strategy as strategy

layers, ops = keras.layers, keras.ops
X, Y = numbers(8, 3), numbers(8, 2, seed=1)


def differentiated(layer: Any, loss: Callable[[Any], Any]) -> tuple[dict[str, list[Any]], list[Any]]:
    """Returns gradients captured while a loss of a layer's output was differentiated, and the weights' gradients."""
    layer(X)  # builds it
    with GradientCaptureContext() as context:
        gradients = gradients_of(layer, lambda: loss(layer(X)))
    return context.captured_gradients, gradients


def test_the_gradient_of_the_output_is_captured() -> None:
    layer = CaptureUpstreamGradients(layers.Dense(2, name="inner"))
    captured, gradients = differentiated(layer, lambda output: ops.sum(ops.square(output)))
    assert layer.name == layer.tag == "inner_cug"
    output = np.asarray(layer(X))
    np.testing.assert_allclose(captured["inner_cug"][0], 2 * output, rtol=1e-5)
    np.testing.assert_allclose(gradients[0], X.T @ (2 * output), rtol=1e-4)


def test_the_gradient_of_an_activations_input_is_captured() -> None:
    stock = layers.Dense(2, activation="tanh", name="inner")
    before = np.asarray(stock(X))
    layer = CaptureActivationGradients(stock)
    captured, _ = differentiated(layer, ops.sum)
    # A built layer keeps its weights.
    np.testing.assert_allclose(layer(X), before, rtol=1e-6)
    np.testing.assert_allclose(captured["inner_cag_activation"][0], 1 - before**2, rtol=1e-4)


class TwoActivations(keras.layers.Layer):
    """A layer whose configuration holds functions."""

    def __init__(self, activation: Any = "relu", last_activation_used: Any = "tanh", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.first, self.last = keras.activations.get(activation), keras.activations.get(last_activation_used)

    def call(self, inputs: Any) -> Any:
        return self.first(inputs) + self.last(inputs)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": self.first, "last_activation_used": self.last}


@pytest.mark.parametrize(
    ("layer", "keys"),
    [
        (lambda: TwoActivations(), {"activation", "last_activation_used"}),
        (lambda: layers.Dense(1), {"activation"}),
        (lambda: layers.Conv2D(1, 3, activation="relu"), {"activation"}),
        (lambda: layers.LSTM(2), {"activation", "recurrent_activation"}),
        (lambda: layers.SimpleRNN(2), {"activation"}),
        (lambda: layers.Embedding(2, 1), set()),
        (lambda: layers.Dropout(0.5), set()),
        (lambda: layers.TimeDistributed(layers.Dense(1)), set()),
    ],
)
def test_which_layers_have_activations(layer: Callable[[], Any], keys: set[str]) -> None:
    made = layer()
    assert CaptureActivationGradients.layer_is_supported(made) == bool(keys)
    if keys:
        assert set(CaptureActivationGradients(made)._wrapped_activations) == keys
        return
    with pytest.raises(ValueError) as raised:
        CaptureActivationGradients(made)
    assert str(raised.value) == (
        f"Layer {made.name} does not use an activation function so is not supported by "
        "keras.ipu.layers.CaptureActivationGradients"
    )


@pytest.mark.parametrize("wrapper", [CaptureUpstreamGradients, CaptureActivationGradients])
def test_only_layers_are_wrapped(wrapper: Any) -> None:
    with pytest.raises(ValueError) as raised:
        wrapper(keras.activations.relu)
    assert str(raised.value) == "Expected an instance of a keras.engine.base_layer.Layer"


@pytest.mark.parametrize("wrapper", [CaptureUpstreamGradients, CaptureActivationGradients])
def test_a_layer_is_serialised(wrapper: Any) -> None:
    layer = wrapper(layers.Dense(2, activation="relu"), tag="mine")
    layer.build((None, 3))
    again = keras.layers.deserialize(keras.layers.serialize(layer))
    again.build((None, 3))
    again.set_weights(layer.get_weights())
    assert (type(again), again.tag, again.name) == (wrapper, "mine", "mine")
    assert again.get_config() == layer.get_config()
    np.testing.assert_allclose(again(X), layer(X))


def test_training_is_passed_on() -> None:
    layer = CaptureUpstreamGradients(layers.Dropout(0.5))
    assert np.any(np.asarray(layer(np.ones((4, 8), np.float32), training=True)) == 0)
    np.testing.assert_array_equal(layer(X), X)


class Collector(keras.optimizers.SGD):
    """Keeps the captured gradients of a step in a variable."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        self.kept = self.add_variable((8, 2), name="kept")

    def apply_gradients(self, grads_and_vars: Any, captured_grads: Any = None) -> Any:
        result = super().apply_gradients(grads_and_vars)
        [[gradient]] = captured_grads.values()
        self.kept.assign(gradient)
        return result


def model_with(layer: Any) -> keras.Model:
    """A model of one layer, without its weights' randomness."""
    return keras.Sequential([keras.Input((3,)), layer])


@pytest.mark.parametrize("wrapper", [CaptureUpstreamGradients, CaptureActivationGradients])
def test_captured_gradients_reach_the_optimizer_in_fit(strategy: Any, wrapper: Any) -> None:
    with strategy.scope():
        model = model_with(wrapper(layers.Dense(2, kernel_initializer="ones")))
        optimizer = Collector(0.0)
        model.compile(optimizer, "mse")
    with device_work() as measured:
        model.fit(X, Y, batch_size=8, shuffle=False, verbose=0)
    assert measured.counts.steps == 1
    wanted = 2 * (X.sum(1, keepdims=True) - Y) / Y.size
    np.testing.assert_allclose(optimizer.kept.numpy(), wanted, rtol=1e-4)
    assert "apply_gradients" not in vars(optimizer)
    assert num_gradient_collection_tapes() == 0


def test_captured_gradients_in_fit_of_automatic_loss_scaling(strategy: Any) -> None:
    with strategy.scope():
        model = model_with(CaptureUpstreamGradients(layers.Dense(2, dtype="float16")))
        optimizer = GradientAccumulationOptimizer(ALSOptimizer("sgd", captured_grads_only=True), 2)
        model.compile(optimizer, "mse", steps_per_execution=2)
    model.fit(X, Y, batch_size=4, verbose=0)
    # Those of the last micro-batch: 4 samples of 2.
    assert np.asarray(optimizer.inner_optimizer.histogram).tolist() == [8.0, 0.0]


def test_an_optimizer_that_ignores_them_trains_as_ever(strategy: Any) -> None:
    weights = []
    for wrap in (CaptureUpstreamGradients, lambda layer: layer):
        with strategy.scope():
            model = model_with(wrap(layers.Dense(2, kernel_initializer="ones")))
            model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=2)
        model.fit(X, Y, batch_size=4, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    np.testing.assert_array_equal(weights[0][0], weights[1][0])
    assert num_gradient_collection_tapes() == 0


MASKED: dict[str, tuple[Any, Callable[[], Any]]] = {
    "table": (CaptureUpstreamGradients, lambda: layers.Embedding(5, 3, mask_zero=True)),
    "dense": (CaptureUpstreamGradients, lambda: layers.Dense(3)),
    "recurrent": (CaptureUpstreamGradients, lambda: layers.LSTM(3, return_sequences=True)),
    "activation": (CaptureActivationGradients, lambda: layers.Dense(3, "tanh")),
}


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.filterwarnings("error:.*does not support masking")
def test_masks_go_on_behind_the_layer(name: str) -> None:
    wrapper, make = MASKED[name]

    def model(wrap: Callable[[Any], Any]) -> keras.Model:
        keras.utils.set_random_seed(0)
        x = keras.Input((4,), dtype="int32")
        last = layers.LSTM(2)
        if name == "table":
            return keras.Model(x, last(wrap(make())(x)))
        return keras.Model(x, last(wrap(make())(layers.Embedding(5, 3, mask_zero=True)(x))))

    plain, captured = model(lambda layer: layer), model(wrapper)
    captured.set_weights(plain.get_weights())
    data = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
    np.testing.assert_allclose(captured.predict(data, verbose=0), plain.predict(data, verbose=0), rtol=1e-5)
