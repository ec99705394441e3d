"""Unused compiled programs are dropped, since the number of memory mappings is limited."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf.device.memory import memory_maps
from ipu_tf.device.memory.memory_maps import TooManyMappings, make_room
from ipu_tf.device.run.executable import Executable
from ipu_tf.device.run.interruptible_function import CompilationState, InterruptibleFunction
from ipu_tf.device.run.run_record import compiling
from ipu_tf.emulation import clear_session
from tests.helpers.library_jit import jit
from tests.helpers.some_ipus import ipus

tf1 = tf.compat.v1


@pytest.fixture
def executables(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Executable]]:
    """The executables that are made from now on."""
    made: list[weakref.ref[Executable]] = []
    first = Executable.__init__

    def init(self: Executable, *args: Any, **kwargs: Any) -> None:
        first(self, *args, **kwargs)
        made.append(weakref.ref(self))

    monkeypatch.setattr(Executable, "__init__", init)
    return made


@tf.custom_gradient
def twice(x: Any) -> Any:
    return 2.0 * x, lambda gradient: 2.0 * gradient


def loop_with_custom_gradient() -> Any:
    """Gradient descent through a function with a gradient of its own, in the body of a loop."""

    def body(x: Any) -> Any:
        return x - 0.1 * tf.gradients(twice(x) ** 2, x)[0]

    return ipu.loops.repeat(3, body, [tf.ones(())])


def session() -> None:
    with tf.Graph().as_default(), tf1.Session() as running:
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            result = ipu.ipu_compiler.compile(loop_with_custom_gradient)
        np.testing.assert_allclose(np.ravel(running.run(result)), 0.2**3, rtol=1e-5)


def strategy() -> None:
    run = tf.function(lambda: twice(tf.ones((2,))))
    np.testing.assert_array_equal(ipu.ipu_strategy.IPUStrategy().run(run), [2.0, 2.0])


@pytest.mark.parametrize("use", [session, strategy], ids=["session", "strategy"])
def test_dropped_programs_are_freed(use: Any, executables: list[weakref.ref[Executable]]) -> None:
    with ipus(1):
        for _ in range(3):
            use()
        gc.collect()
    assert len(executables) >= 3
    assert [made() for made in executables] == [None] * len(executables)


def limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, used: float) -> None:
    """Has the limit be such that this part of it is used."""
    limit = tmp_path / "max_map_count"
    limit.write_text(str(int(len(Path("/proc/self/maps").read_text().splitlines()) / used)))
    monkeypatch.setattr(memory_maps, "_LIMIT", limit)
    clear_session()


def test_a_process_near_the_limit_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limited(monkeypatch, tmp_path, 0.3)
    make_room()
    limited(monkeypatch, tmp_path, 0.7)
    with pytest.warns(UserWarning, match="memory mappings. Delete models"):
        make_room()
    limited(monkeypatch, tmp_path, 0.97)
    with pytest.raises(TooManyMappings, match="vm.max_map_count"):
        make_room()


def test_functions_of_a_program_that_was_counted_long_ago_are_counted_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another shape of a loop, and each stage of a pipeline, is compiled when it is needed first."""
    function = InterruptibleFunction(jit(lambda x: x + 1), CompilationState())
    limited(monkeypatch, tmp_path, 0.97)
    with pytest.raises(TooManyMappings, match="vm.max_map_count"):
        function(np.float32(1))
    limited(monkeypatch, tmp_path, 0.3)
    assert function(np.float32(1)) == 2


@pytest.mark.parametrize("of_each", [30, 300])
def test_functions_are_refused_before_the_limit_is_reached(of_each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five pipelines of 16 stages are 240 functions, of up to a hundred pieces each."""
    clear_session()
    used, limit, functions = 2000, 65530, 0
    monkeypatch.setattr(memory_maps, "_used", lambda: used)
    monkeypatch.setattr(memory_maps, "_limit", lambda: limit)
    with pytest.raises(TooManyMappings), pytest.warns(UserWarning, match="memory mappings"):
        while used < limit:
            with compiling():
                used += of_each
                functions += 1
    assert 0.9 * limit < used < 0.95 * limit
    assert functions == (used - 2000) / of_each
    clear_session()
