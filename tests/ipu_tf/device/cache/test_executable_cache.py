"""The executable cache: what one process compiles the next one loads; damaged entries are never loaded."""

from __future__ import annotations

import gc
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._state import numbers
from ipu_tf._training.accumulation import accumulated
from ipu_tf.config import DeviceConnectionType
from ipu_tf.device.cache import executable_cache, sealed_file, whole_file
from ipu_tf.device.cache.cache_entry import SUFFIX
from ipu_tf.device.cache.executable_cache import CachedFunction
from ipu_tf.device.memory.hidden_state import ACCUMULATOR
from ipu_tf.device.memory.malloc_options import memory_options
from tests.helpers.device_counts import device_work

SCRIPT = """
import json, time
import numpy as np, tensorflow as tf
import ipu_tf as ipu
from ipu_tf.emulation import device_counts
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
weights = tf.Variable(np.full((64, 64), 0.01, np.float32))
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(tf.ones([8, 64])).repeat())
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
def body(x):
    with tf.GradientTape() as tape:
        y = x
        for _ in range(8):
            y = tf.tanh(y @ weights)
        loss = tf.reduce_sum(y)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
    return outfeed.enqueue(loss)
def program():
    ipu.loops.repeat(6, body, [], infeed)
strategy = ipu.ipu_strategy.IPUStrategy()
start = time.perf_counter()
strategy.run(tf.function(program, autograph=False))
took = time.perf_counter() - start
counts = device_counts()
print("RESULT", json.dumps([counts.programs, counts.loads, took, outfeed.dequeue().numpy().tolist()]))
"""


def run_process(directory: Path) -> list[Any]:
    """Runs `SCRIPT` in a process of its own: programs compiled, programs loaded, seconds, losses."""
    environment = os.environ | {"TF_POPLAR_FLAGS": f"--executable_cache_path={directory}", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result: list[Any] = json.loads(done.stdout.split("RESULT ")[1])
    return result


def cached(directory: Path, factor: float = 2.0) -> CachedFunction:
    """A function with a cache, new to this process."""
    return CachedFunction(lambda x: (jnp.sin(x) * factor, {"sum": x.sum()}), (), directory)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The directory of a cache that TF_POPLAR_FLAGS asks for."""
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path / 'cache'}")
    yield tmp_path / "cache"
    executable_cache.use("")


def configured(kind: DeviceConnectionType = DeviceConnectionType.ALWAYS, ipus: int = 1) -> Any:
    """A strategy for a device that is connected so."""
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = ipus
    config.device_connection.type = kind
    config.device_connection.version = "ipu2"
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


def test_a_program_is_known_whatever_was_numbered_before(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine and ten sort otherwise than one and two, as text."""
    strategy = configured()
    found = []
    for first in (1, 9):
        monkeypatch.setitem(numbers._COUNTS, ACCUMULATOR, itertools.count(first))

        def body(x: Any) -> Any:
            return x + accumulated(tf.sin(x), 2) * accumulated(tf.reduce_sum(x), 2)

        with device_work() as work:
            results = strategy.run(tf.function(lambda body=body: ipu.loops.repeat(4, body, [tf.ones([4])])))
        found.append((work.counts.programs, work.counts.loads, results[0].numpy().tolist()))
    assert [each[:2] for each in found] == [(1, 0), (0, 1)]
    assert found[0][2] == found[1][2]
    ipu.config.reset_ipu_configuration()


def test_large_intermediate_results(tmp_path: Path) -> None:
    """100 MiB of them, which XLA keeps in one block then: it cannot serialize several."""

    def large(x: Any) -> Any:
        terms = []
        for _ in range(5):
            x = jax.lax.optimization_barrier(x + 1)
            terms.append(x)
        return sum(term.sum() for term in jax.lax.optimization_barrier(terms))

    x = np.zeros(5 * 2**20, np.float32)
    assert CachedFunction(large, (), tmp_path)(x) == sum(range(1, 6)) * x.size
    assert len(list(tmp_path.glob(f"*{SUFFIX}"))) == 1
    assert memory_options()
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert not memory_options()
    finally:
        jax.config.update("jax_compilation_cache_dir", None)


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    compiled, loaded, cold, losses = run_process(tmp_path)
    assert (compiled, loaded) == (1, 0)
    compiled, loaded, warm, same = run_process(tmp_path)
    assert (compiled, loaded) == (0, 1)
    assert same == losses
    print(f"first run to its end: {cold:.2f} s without the cache, {warm:.2f} s with it")


def test_pre_compiled_programs_are_not_compiled_again(cache: Path) -> None:
    weights = tf.Variable([2.0])
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.range(9).map(lambda i: tf.cast(i, tf.float32)))

    def program() -> None:
        def body(x: tf.Tensor) -> Any:
            weights.assign_add([x])
            return outfeed.enqueue(weights * x)

        ipu.loops.repeat(3, body, [], infeed)

    with device_work() as work:
        configured(DeviceConnectionType.PRE_COMPILE).run(tf.function(program))
    assert (work.counts.programs, work.counts.executions) == (0, 0)
    assert outfeed.dequeue().numpy().tolist() == [[0.0]]
    assert weights.numpy() == [0.0]
    weights.assign([2.0])
    with device_work() as work:
        configured().run(tf.function(program))
    assert (work.counts.programs, work.counts.loads, work.counts.executions) == (0, 1, 1)
    assert outfeed.dequeue().numpy().tolist() == [[0.0], [3.0], [10.0]]
    ipu.config.reset_ipu_configuration()


@pytest.mark.parametrize("ipus", [1, 2])
def test_programs_load_in_the_same_process(ipus: int, cache: Path) -> None:
    strategy = configured(ipus=ipus)
    with device_work() as first:
        results = [strategy.run(tf.function(lambda x: tf.cos(x) * 3), [tf.constant([0.5])]) for _ in range(2)]
    assert results[0].numpy() == results[1].numpy() == pytest.approx(3 * np.cos(np.float32(0.5)))
    assert (first.counts.programs, first.counts.loads, first.counts.executions) == (1, 1, 2)
    assert len(list(cache.glob(f"*{SUFFIX}"))) == 1
    ipu.config.reset_ipu_configuration()


def test_programs_that_are_dropped_are_unloaded(cache: Path) -> None:
    """Each kept 130 memory mappings, of the 65,530 that a process may have."""
    strategy, client = configured(), jax.devices("cpu")[0].client

    def run(factor: float) -> None:
        strategy.run(tf.function(lambda x: x * factor), [tf.ones([3])])

    run(1.5)
    gc.collect()
    before = len(client.live_executables())
    with device_work() as work:
        for factor in (2.0, 3.0, 4.0, 2.0):
            run(factor)
    gc.collect()
    assert (work.counts.programs, work.counts.loads) == (3, 1)
    assert len(client.live_executables()) <= before
    ipu.config.reset_ipu_configuration()


def test_variables_keep_their_values_when_programs_are_loaded(cache: Path) -> None:
    """Loaded code gives up the buffers that compiled code gives up."""
    strategy = configured()
    for _ in range(2):
        variable = tf.Variable(np.arange(1000, dtype=np.float32))
        add = tf.function(variable.assign_add)
        for _ in range(3):
            strategy.run(add, [tf.ones([1000])])
        assert variable.numpy().tolist() == list(range(3, 1003))
    ipu.config.reset_ipu_configuration()


def test_pre_compile_leaves_variables_and_infeeds_alone(cache: Path) -> None:
    variable = tf.Variable([1.0, 2.0])
    strategy = configured(DeviceConnectionType.PRE_COMPILE)
    with device_work() as work:
        assert strategy.run(tf.function(lambda x: x + variable), [tf.ones([2])]).numpy().tolist() == [0, 0]
    assert variable.numpy().tolist() == [1, 2]
    assert work.counts.executions == 0
    assert len(list(cache.glob(f"*{SUFFIX}"))) == 1
    ipu.config.reset_ipu_configuration()


def test_programs_that_call_the_host_are_not_kept(tmp_path: Path) -> None:
    seen: list[float] = []

    def call(x: Any) -> Any:
        jax.debug.callback(lambda value: seen.append(float(value)), x)
        return x + 1

    function = CachedFunction(call, (), tmp_path)
    assert float(function(jnp.float32(2))) == 3
    jax.effects_barrier()
    assert seen == [2.0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("change", ["shape", "dtype", "program", "donation", "structure"])
def test_another_program_is_another_entry(change: str, tmp_path: Path) -> None:
    first, second = cached(tmp_path), cached(tmp_path)
    x = jnp.arange(6, dtype=jnp.float32)
    first(x)
    if change == "shape":
        second(x.reshape(2, 3))
    elif change == "dtype":
        second(x.astype(jnp.int32))
    elif change == "program":
        second = cached(tmp_path, factor=3.0)
        np.testing.assert_allclose(second(x)[0], 3 * np.sin(np.asarray(x)), rtol=1e-6)
    elif change == "donation":
        second = CachedFunction(lambda x: (jnp.sin(x) * 2.0, {"sum": x.sum()}), (0,), tmp_path)
        second(jnp.array(x))
    else:
        second = CachedFunction(lambda x: (jnp.sin(x["a"]) * 2.0, {"sum": x["a"].sum()}), (), tmp_path)
        second({"a": x})
        assert not second.take_compiled()  # names and nesting of arguments are no part of a program
        return
    assert second.take_compiled()
    assert len(list(tmp_path.iterdir())) == 2


def test_what_it_depends_on_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = jnp.arange(4.0)
    cached(tmp_path)(x)
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--other")
    other = cached(tmp_path)
    other(x)
    assert other.take_compiled()
    monkeypatch.setattr(jax, "__version__", "0.0.1")
    other = cached(tmp_path)
    other(x)
    assert other.take_compiled()


def test_a_writer_that_was_killed_leaves_no_entry(tmp_path: Path) -> None:
    """A process dies in the middle of writing, again and again: what is under the name stays whole."""
    target = tmp_path / f"x{SUFFIX}"
    script = (
        "import sys, os; from ipu_tf.device.cache import sealed_file\n"
        "os.fsync = lambda number: os.kill(os.getpid(), 9)\n"
        "sealed_file.write_sealed(sys.argv[1], 'compiled', b'new' * 1000)\n"
    )
    sealed_file.write_sealed(target, "compiled", b"old")
    done = subprocess.run([sys.executable, "-c", script, str(target)], check=False)
    assert done.returncode == -9
    assert sealed_file.read_sealed(target, "compiled") == b"old"
    [left] = tmp_path.glob(f"*{whole_file.TEMPORARY}")
    executable_cache.use(str(tmp_path))
    assert left.exists(), "its writer may still be at it"
    executable_cache.use("")
    os.utime(left, (time.time() - 7200,) * 2)
    executable_cache.use(str(tmp_path))
    executable_cache.use("")
    assert not left.exists()


def test_writers_at_the_same_time_leave_one_whole_entry(tmp_path: Path) -> None:
    script = (
        "import sys; from ipu_tf.device.cache.sealed_file import read_sealed, write_sealed\n"
        "for i in range(300):\n"
        "    write_sealed(sys.argv[1], 'compiled', sys.argv[2].encode() * 5000)\n"
        "    assert len(set(read_sealed(sys.argv[1], 'compiled'))) == 1\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "x"), name]) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert sealed_file.read_sealed(tmp_path / "x", "compiled") in (b"a" * 5000, b"b" * 5000)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
