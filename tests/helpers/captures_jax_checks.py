"""Tests of captured gradients that need KERAS_BACKEND=jax: run by `test_both_backends.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import keras
import numpy as np
import pytest
from keras import layers

from ipu_tf.eager.backprop import GradientCaptureContext, num_gradient_collection_tapes
from ipu_tf.emulation import EmulationError
from keras_ipu.layers import CaptureActivationGradients, CaptureUpstreamGradients
from keras_ipu.training.jax.captured_gradients import capture
from tests.helpers.captures_two_backends import CAPTURED, captured_run
from tests.helpers.keras_parity import numbers
from tests.helpers.keras_two_backends import SAVED
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]
X, Y = numbers(8, 6), numbers(8, 2, seed=1)


@pytest.fixture(autouse=True)
def none_left_open() -> Iterator[None]:
    yield
    assert num_gradient_collection_tapes() == 0


class Tags(keras.optimizers.SGD):
    """Notes the shapes of what is captured under each tag while the step is traced."""

    def __init__(self) -> None:
        super().__init__(0.1)
        self.seen: dict[str, list[tuple[int, ...]]] = {}

    def apply_gradients(self, grads_and_vars: Any, captured_grads: Any = None) -> Any:
        self.seen.update({tag: [each.shape for each in kept] for tag, kept in captured_grads.items()})
        return super().apply_gradients(grads_and_vars)


def shapes_in_fit(strategy: Any, stack: Callable[[Any], Any]) -> dict[str, list[tuple[int, ...]]]:
    with strategy.scope():
        x = keras.Input((6,))
        model = keras.Model(x, stack(x))
        model.compile(Tags(), "mse")
    model.fit(X, Y, batch_size=8, verbose=0)
    seen: dict[str, list[tuple[int, ...]]] = model.optimizer.seen
    assert "apply" not in vars(model.optimizer)
    return seen


def recurrent(unroll: bool) -> Callable[[Any], Any]:
    lstm = layers.LSTM(4, unroll=unroll)
    return lambda x: layers.Dense(2)(CaptureActivationGradients(lstm, tag="lstm")(layers.Reshape((3, 2))(x)))


def test_each_step_of_an_unrolled_layer_is_captured(strategy: Any) -> None:
    # Of each of the 3 steps: the candidate and the state; three gates.
    wanted = {"lstm_activation": [(8, 4)] * 6, "lstm_recurrent_activation": [(8, 4)] * 9}
    assert shapes_in_fit(strategy, recurrent(unroll=True)) == wanted


def test_what_has_no_gradient_is_not_captured(strategy: Any) -> None:
    """A layer called twice counts twice; without weights ahead of it, or uses after it, there is no gradient."""

    def stack(x: Any) -> Any:
        twice = CaptureUpstreamGradients(layers.Dense(6), tag="twice")
        x = CaptureUpstreamGradients(layers.Rescaling(2.0), tag="ahead")(x)
        x = twice(twice(x))
        unused = CaptureUpstreamGradients(layers.Dense(2), tag="unused")(x)
        return layers.Add()([layers.Dense(2)(x), layers.Lambda(keras.ops.stop_gradient)(unused)])

    assert shapes_in_fit(strategy, stack) == {"twice": [(8, 6), (8, 6)]}


class Inner(layers.Layer):
    """Calls another layer within a function that JAX traces for itself."""

    def __init__(self, transform: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = CaptureUpstreamGradients(layers.Dense(2), tag="inner")
        self.transform = transform

    def build(self, shape: Any) -> None:
        self.layer.build(shape)

    def call(self, x: Any) -> Any:
        return self.transform(lambda x: self.layer(x))(x)  # a function that JAX has not traced before


INNER: dict[str, Callable[[Any], Any]] = {
    "scan": recurrent(unroll=False),
    "jit": Inner(jax.jit),
    "checkpoint": Inner(jax.checkpoint),
    "vmap": Inner(lambda layer: jax.vmap(lambda row: layer(row[None])[0])),
}


@pytest.mark.parametrize("name", sorted(INNER))
def test_gradients_of_inner_functions_are_refused(strategy: Any, name: str) -> None:
    wanted = r"captured as '(lstm_.*|inner)' arises in a function that JAX traces"
    with pytest.raises(EmulationError, match=wanted) as raised:
        shapes_in_fit(strategy, INNER[name])
    calls = "in shapes_in_fit" if name == "scan" else "return self.transform(lambda x: self.layer(x))"
    assert f'File "{__file__}", line' in str(raised.value)
    assert calls in str(raised.value)


def test_a_loop_of_ones_own() -> None:
    def loss(x: Any, y: Any) -> Any:
        left, right = capture((x * x, {"right": y * 3.0}), tag="pair")
        return jax.numpy.sum(left * right["right"])

    @jax.jit
    def program(x: Any, y: Any) -> Any:
        with GradientCaptureContext() as context:
            gradient = jax.grad(loss)(x, y)
        return gradient, context.captured_gradients

    x, y = numbers(5), numbers(5, seed=1)
    gradient, captured = program(x, y)
    np.testing.assert_allclose(gradient, 6 * x * y, rtol=1e-5)
    np.testing.assert_allclose(captured["pair"], [3 * y, x * x], rtol=1e-5)


def test_no_context() -> None:
    with pytest.raises(RuntimeError, match="may only be used within the context of"):
        jax.grad(lambda x: capture(x, tag="x"))(1.0)


def test_runs_that_the_parent_process_compares() -> None:
    """Fixture of the parent process, which compares with Keras on TensorFlow: writes its file and checks nothing."""
    arrays: dict[str, Any] = {f"{run}/{name}": array for run in CAPTURED for name, array in captured_run(run).items()}
    path = SAVED.get()
    np.savez(path.with_name("captured.npz"), **arrays)
