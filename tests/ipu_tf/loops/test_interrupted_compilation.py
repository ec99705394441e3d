"""Ctrl-C while XLA compiles, or while an optimizer makes its slots, ends the call at once and leaves a usable model."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
import pytest

from ipu_tf.device.cache.jax_compilation import Compilation
from ipu_tf.device.run.interruptible_function import CompilationState, InterruptibleFunction
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

    def __init__(self, monkeypatch: pytest.MonkeyPatch, compiler: Any = jax.stages.Lowered) -> None:
        self.count, self.may = 0, threading.Event()
        stock = compiler.compile

        def compile_late(lowered: Any, *args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == 1:
                press_ctrl_c()
            assert self.may.wait(60)
            return stock(lowered, *args, **options)

        monkeypatch.setattr(compiler, "compile", compile_late)


@pytest.mark.parametrize("cached", [False, True])
def test_a_compilation_is_left_and_its_result_used_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cached: bool
) -> None:
    if cached:
        monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path / 'cache'}")
    with ipus(1) as strategy, strategy.scope():
        wanted = trained(built("adam"))
        for entry in tmp_path.glob("cache/*"):  # else there was nothing to compile
            entry.unlink()
        model = built("adam")
        before = model.get_weights()
        slow = SlowCompilation(monkeypatch, Compilation if cached else jax.stages.Lowered)
        with pytest.raises(KeyboardInterrupt):
            trained(model)  # would wait for a minute
        for mine, first in zip(model.get_weights(), before, strict=True):
            np.testing.assert_array_equal(mine, first)
        slow.may.set()
        with device_work() as work:
            found = trained(model)
    assert slow.count == 1
    assert len(list(tmp_path.glob("cache/*.poplar_exec"))) == int(cached)
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


def test_a_compilation_that_fails_is_tried_again_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = jax.stages.Lowered.compile
    failed: list[Any] = []

    def compile_the_second_time(lowered: Any, *args: Any, **options: Any) -> Any:
        if not failed:
            failed.append(lowered)
            raise MemoryError("no room to compile")
        return stock(lowered, *args, **options)

    compilation = CompilationState()
    function = InterruptibleFunction(jax.jit(lambda x: x * 2), compilation)
    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_the_second_time)
    with jax.enable_x64(True), compilation.interrupts:
        assert (compilation.interrupts.active, compilation.nothing_donated) == (True, True)
        with pytest.raises(MemoryError, match="no room to compile"):
            function(np.float32(3))
        assert function(np.float32(3)) == 6
    assert len(failed) == 1
