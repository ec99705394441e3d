"""The garbage collector's pauses: while steps are traced and compiled, nested and in several threads, and no longer."""

from __future__ import annotations

import gc
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ipu_tf.device.paused_collection import paused_collection
from ipu_tf.device.run.interruptible_function import CompilationState, InterruptibleFunction


def test_pauses_nest_and_end() -> None:
    assert gc.isenabled()
    with paused_collection():
        with paused_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_pause_that_fails_ends() -> None:
    with pytest.raises(ZeroDivisionError), paused_collection():
        raise ZeroDivisionError
    assert gc.isenabled()


def test_the_last_of_several_threads_ends_the_pause() -> None:
    began, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with paused_collection():
            began.set()
            may_end.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    assert began.wait(30)
    with paused_collection():
        pass
    assert not gc.isenabled()
    may_end.set()
    thread.join(30)
    assert gc.isenabled()


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with paused_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_functions_are_traced_without_collections() -> None:
    seen: list[bool] = []

    def function(x: Any) -> Any:
        seen.append(gc.isenabled())
        return x + 1

    compiled = InterruptibleFunction(jax.jit(function), CompilationState())
    np.testing.assert_array_equal(compiled(jnp.zeros(3)), np.ones(3))
    assert seen == [False]
    assert gc.isenabled()
