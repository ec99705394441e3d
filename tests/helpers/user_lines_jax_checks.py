"""Tests that refusals name the user's line, with KERAS_BACKEND=jax."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import ipu_tf as ipu
from tests.helpers.some_ipus import ipus

FILE = Path(__file__)
X, Y = np.linspace(0.1, 0.9, 16, dtype=np.float32).reshape(8, 2), np.ones((8, 2), np.float32)


def mask(x: Any) -> Any:
    return x + jnp.sum(x[x > 0.5])  # refused: mask


def numpy(x: Any) -> Any:
    return x + np.asarray(x)  # refused: numpy


def python(x: Any) -> Any:
    return x if x[0, 0] > 0 else -x  # refused: python


def steps(x: Any) -> Any:
    return x + jnp.sum(jnp.arange(x[0, 0].astype(int)))  # refused: steps


REFUSED = {function.__name__: function for function in (mask, numpy, python, steps)}


class Refuses(keras.layers.Layer):
    """Refuses in its call."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function, self.built = function, True

    def call(self, x: Any) -> Any:
        """Returns the function's results."""
        return self.function(x)

    def compute_output_spec(self, x: Any) -> Any:
        """As the input."""
        return keras.KerasTensor(x.shape, x.dtype)


class Own(keras.Model):
    """Refuses in its training step."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function, self.dense = function, keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        """A product."""
        return self.dense(x)

    def train_step(self, state: Any, data: Any) -> Any:
        """A step on other data."""
        return super().train_step(state, (self.function(data[0]), data[1]))


def trained(model: keras.Model, method: str = "fit", loss: Any = "mse", metrics: Any = ()) -> None:
    model.compile("sgd", loss, metrics=list(metrics))
    getattr(model, method)(*((X,) if method == "predict" else (X, Y)), batch_size=2, verbose=0)


def layered(function: Callable[[Any], Any]) -> keras.Model:
    return keras.Sequential([keras.Input((2,)), Refuses(function), keras.layers.Dense(2)])


def plain() -> keras.Model:
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])


RUNS: dict[str, Callable[[Callable[[Any], Any]], None]] = {
    "fit": lambda function: trained(layered(function)),
    "evaluate": lambda function: trained(layered(function), "evaluate"),
    "predict": lambda function: trained(layered(function), "predict"),
    "train step": lambda function: trained(Own(function)),
    "loss": lambda function: trained(plain(), loss=lambda y, z: jnp.mean(function(z) - y)),
    "metric": lambda function: trained(plain(), "evaluate", metrics=[lambda y, z: jnp.mean(function(z))]),
}


def line_of(name: str) -> int:
    """The line of this file that a refusal is marked at."""
    lines = FILE.read_text().splitlines()
    [found] = [number for number, line in enumerate(lines, 1) if line.endswith(f"# refused: {name}")]
    return found


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("refused", REFUSED)
def test_a_refusal_of_jax_shows_the_line(refused: str, run: str) -> None:
    with ipus(1) as strategy, strategy.scope(), pytest.raises(Exception) as raised:  # noqa: PT011 - of many types
        RUNS[run](REFUSED[refused])
    assert f'File "{FILE}", line {line_of(refused)}, in {refused}\n' in str(raised.value)
    assert str(raised.value).endswith("runs the steps of a model op by op instead, for debugging.")


def predicted(**compiled: Any) -> Any:
    model = layered(python)
    model.layers[-1].set_weights([np.ones((2, 2), np.float32), np.zeros(2, np.float32)])
    model.compile(**compiled)
    return model.predict(X, batch_size=2, verbose=0)


def test_steps_without_compilation_are_traced_unless_they_run_eagerly() -> None:
    """Stock Keras runs such steps on values."""
    wanted = predicted(jit_compile=False)
    with ipus(1) as strategy, strategy.scope():
        with pytest.raises(Exception, match="run_eagerly=True"):  # Keras rewords it
            predicted(jit_compile=False)
        [said] = [each for each in ipu.emulation.ignored_arguments() if each.name == "compile.jit_compile"]
        np.testing.assert_allclose(predicted(run_eagerly=True), wanted, rtol=1e-6)
    assert (said.value, "run_eagerly=True" in said.reason) == ("False", True)


def test_half_precision_that_is_not_modelled_shows_the_line() -> None:
    def half(x: Any) -> Any:
        return (x.astype(jnp.float16) * 2).astype(jnp.float32)  # refused: half

    with ipus(1) as strategy, strategy.scope():
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        config.floating_point_behaviour.nanoo = True
        config.configure_ipu_system()
        with pytest.raises(NotImplementedError, match="nanoo") as raised:
            trained(layered(half))
    assert f'File "{FILE}", line {line_of("half")}, in half\n' in str(raised.value)


def test_the_backend_is_jax() -> None:
    assert keras.backend.backend() == "jax"
    assert jax.default_backend() == "cpu"
