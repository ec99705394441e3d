"""Compares Keras models on the device with stock Keras on the CPU: the same program, with and without the scope."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

import ipu_tf as ipu
from ipu_tf.device.counters import COUNTERS, DeviceCounts
from tests.helpers.lowering_parity import assert_close

STOCK_JIT = keras.backend.backend() == "jax"
"""`jit_compile` of stock Keras: kernels of TensorFlow, programs of JAX, which else runs every op by itself."""

BATCH = 4
STEPS = 10
EPOCHS = 2
"""20 steps in all."""

TIGHT = 1e-5
"""Where no sum is taken in another order."""
LOOSE = 1e-4
"""Where convolutions, matrix products or reductions add up in another order than TensorFlow's CPU kernels."""
ROUND_OFF = 1e-8
"""Arrays of smaller numbers only are taken for zeros."""
DIVERGED = 1e3
"""A loss above this, or none, is one of a training that magnifies round-off, and at last compares NaN with NaN."""


def configure(ipus: int = 1) -> None:
    """Makes `/device:IPU:0` available, with so many IPUs."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.configure_ipu_system()


def ipu_scope() -> contextlib.AbstractContextManager[Any]:
    """The scope in which models are made for the device."""
    return ipu.ipu_strategy.IPUStrategy().scope()


def on_side(on_device: bool, build: Callable[[], keras.Model], ipus: int = 1) -> keras.Model:
    """Builds a model of stock Keras, or of a system with so many IPUs."""
    if not on_device:
        return build()
    configure(ipus)
    with ipu_scope():
        return build()


@contextlib.contextmanager
def counted() -> Iterator[Callable[[], DeviceCounts]]:
    """Gives a function that tells what the device did since."""
    before = COUNTERS.read()
    yield lambda: COUNTERS.read().since(before)


def sgd(learning_rate: float = 0.05) -> keras.optimizers.Optimizer:
    """An optimizer that does not magnify differences of tiny gradients."""
    return keras.optimizers.SGD(learning_rate, momentum=0.9)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    """float32 of mean 0 and variance 1."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def integers(high: int, *shape: int, seed: int = 1) -> np.ndarray:
    """int32 from 0 to below `high`."""
    return np.random.default_rng(seed).integers(0, high, shape).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class Seen:
    """Output of a program.

    Attributes:
        history: losses and metrics by name, one value an epoch.
        evaluated: what `evaluate` gave.
        weights: of the model, by path.
        optimizer: the optimizer's variables.
        device: what the device did.
    """

    history: dict[str, list[float]]
    evaluated: dict[str, float]
    weights: dict[str, np.ndarray]
    optimizer: list[np.ndarray]
    device: DeviceCounts


@dataclasses.dataclass(frozen=True)
class Program:
    """A Keras program that must give on the device what it gives on stock Keras.

    Attributes:
        name: of the test.
        build: makes the model.
        x: what it is fitted to: 40 samples.
        y: 40 targets.
        loss: as for `compile`.
        metrics: makes what `compile` takes.
        optimizer: makes the optimizer.
        rtol: relative to the largest element of an array.
    """

    name: str
    build: Callable[[], keras.Model]
    x: Any
    y: Any
    loss: Any = "mse"
    metrics: Callable[[], Any] = lambda: None
    optimizer: Callable[[], keras.optimizers.Optimizer] = sgd
    rtol: float = LOOSE
    compiled: dict[str, Any] = dataclasses.field(default_factory=dict)

    def check(self) -> None:
        """Fails unless both sides agree and the device ran every step of its side, and none of the other's."""
        stock, device = self.run_stock(), self.run_device()
        assert stock.device.executions == 0
        assert device.device.steps == (EPOCHS + 1) * STEPS
        assert_same_seen(device, stock, self.rtol)

    def run_stock(self) -> Seen:
        """The program outside the scope."""
        return self._run(contextlib.nullcontext(), jit_compile=STOCK_JIT)

    def run_device(self, steps_per_execution: int = 5) -> Seen:
        """The program in the scope."""
        configure()
        return self._run(ipu_scope(), steps_per_execution=steps_per_execution)

    def _run(self, scope: contextlib.AbstractContextManager[Any], **compiled: Any) -> Seen:
        keras.utils.clear_session()  # names are numbered from the start
        keras.utils.set_random_seed(1)
        with counted() as device:
            with scope:
                model = self.build()
                model.compile(self.optimizer(), self.loss, metrics=self.metrics(), **compiled, **self.compiled)
            history = model.fit(self.x, self.y, batch_size=BATCH, epochs=EPOCHS, verbose=0).history
            evaluated = model.evaluate(self.x, self.y, batch_size=BATCH, verbose=0, return_dict=True)
            return Seen(history, evaluated, weights_of(model), optimizer_of(model), device())


def weights_of(model: keras.Model) -> dict[str, np.ndarray]:
    """A model's weights by position and path."""
    return {f"{place} {weight.path}": weight.numpy() for place, weight in enumerate(model.weights)}


def optimizer_of(model: keras.Model) -> list[np.ndarray]:
    """The values of the variables of a model's optimizer."""
    return [variable.numpy() for variable in model.optimizer.variables]


def assert_same_seen(found: Seen, expected: Seen, rtol: float) -> None:
    """Asserts that two sides saw the same losses, metrics, weights and optimizer variables; the second converges."""
    losses = [*expected.history["loss"], expected.evaluated["loss"]]
    assert all(abs(loss) < DIVERGED for loss in losses), f"stock Keras diverges: {losses}"
    assert_same_numbers(found.history, expected.history, rtol)
    assert_same_numbers(found.evaluated, expected.evaluated, rtol)
    assert len(found.weights) == len(expected.weights)
    for (path, got), wanted in zip(found.weights.items(), expected.weights.values(), strict=True):
        _assert_array(path, got, wanted, rtol)
    for place, (got, wanted) in enumerate(zip(found.optimizer, expected.optimizer, strict=True)):
        _assert_array(f"optimizer variable {place}", got, wanted, rtol)


def assert_same_numbers(found: dict[str, Any], expected: dict[str, Any], rtol: float) -> None:
    """Asserts the same names, each with the same numbers."""
    assert sorted(found) == sorted(expected)
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=rtol, atol=1e-7, err_msg=name)


def _assert_array(name: str, got: np.ndarray, wanted: np.ndarray, rtol: float) -> None:
    if np.abs(wanted).max(initial=0) < ROUND_OFF:
        # Nothing but the round-off of a gradient that is zero, such as that of the bias of attention's keys.
        assert np.abs(got).max(initial=0) < ROUND_OFF, f"{name}: {got}, wanted zeros"
        return
    try:
        assert_close(got, wanted, rtol)
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from error
