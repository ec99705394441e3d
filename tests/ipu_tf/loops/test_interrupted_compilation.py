"""Ctrl-C while XLA compiles, or while an optimizer makes its slots, ends the call at once and leaves a usable model."""

from __future__ import annotations

import threading
from typing import Any

import jax
import keras
import numpy as np
import pytest

from tests.helpers.device_counts import device_work
from tests.helpers.sigint import press_ctrl_c, sigint_interrupts  # noqa: F401 - a fixture
from tests.helpers.some_ipus import ipus

X, Y = np.ones((16, 4), np.float32), np.ones((16, 1), np.float32)


pytestmark = pytest.mark.usefixtures("sigint_interrupts")


def built(optimizer: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", steps_per_execution=4)
    return model


def trained(model: Any) -> list[np.ndarray]:
    model.fit(X, Y, 4, epochs=2, verbose=0, shuffle=False)
    return model.get_weights()


class SlowCompilation:
    """XLA compiles only once it may, and Ctrl-C is pressed when it would begin.

    Attributes:
        count: how many compilations have begun.
        may: set when they may go on.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.may = 0, threading.Event()
        stock = jax.stages.Lowered.compile

        def compile_late(lowered: Any, *args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == 1:
                press_ctrl_c()
            assert self.may.wait(60)
            return stock(lowered, *args, **options)

        monkeypatch.setattr(jax.stages.Lowered, "compile", compile_late)


def test_a_compilation_is_left_and_its_result_used_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    with ipus(1) as strategy, strategy.scope():
        wanted = trained(built("adam"))
        model = built("adam")
        before = model.get_weights()
        slow = SlowCompilation(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            trained(model)  # would wait for a minute
        for mine, first in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(mine, first)
        slow.may.set()
        with device_work() as work:
            found = trained(model)
    assert slow.count == 1
    assert (work.counts.programs, work.counts.steps) == (1, 8)
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_what_a_compilation_raises_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(lowered: Any, *args: Any, **options: Any) -> Any:
        raise jax.errors.JaxRuntimeError("no memory")

    with ipus(1) as strategy, strategy.scope(), monkeypatch.context() as patched:
        patched.setattr(jax.stages.Lowered, "compile", failing)
        model = built("sgd")
        with pytest.raises(jax.errors.JaxRuntimeError, match="no memory"):
            trained(model)


class Pressed(keras.optimizers.Adam):
    """Ctrl-C is pressed when the first slot is made."""

    pressed = False

    def add_optimizer_variables(self, *args: Any, **options: Any) -> Any:
        if not self.pressed:
            self.pressed = True
            press_ctrl_c()
        return super().add_optimizer_variables(*args, **options)


def test_an_optimizer_is_not_left_without_its_slots() -> None:
    with ipus(1) as strategy, strategy.scope():
        wanted = trained(built("adam"))
        model = built(Pressed())
        with pytest.raises(KeyboardInterrupt):
            trained(model)
        for mine, other in zip(trained(model), wanted, strict=True):
            np.testing.assert_array_equal(mine, other)
