"""Programs kept in the user's cache folder by default: the same bits and plans, bounded, never in test runs."""

from __future__ import annotations

import json
import logging
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf

import ipu_tf as ipu
from ipu_tf._compat.launcher_stats import JaxDevices, stats_line
from ipu_tf.device import environment
from ipu_tf.device.cache import cache_folder, executable_cache, jax_compilation, user_cache
from ipu_tf.device.cache.cache_entry import SUFFIX
from ipu_tf.device.cache.user_cache import KeptCompilation, user_folder
from ipu_tf.device.convolution import onednn
from ipu_tf.device.convolution.native import library
from ipu_tf.device.counters import DeviceCounts
from tests.helpers.device_counts import device_work
from tests.ipu_tf.device.cache.test_executable_cache import SCRIPT

X = np.linspace(-2, 2, 640, dtype=np.float32).reshape(10, 64)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """The user's cache folder, switched on."""
    ipu.emulation.clear_session()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("IPU_TF_CACHE", "1")
    yield tmp_path / "ipu_tf" / "executables"
    executable_cache.use("")
    ipu.config.reset_ipu_configuration()


def entries(folder: Path) -> set[str]:
    return {path.name for path in folder.glob(f"*{SUFFIX}")}


def strategy() -> Any:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    return ipu.ipu_strategy.IPUStrategy()


def gradient(x: tf.Tensor) -> tf.Tensor:
    """A program of a product, a reduction and elementwise operations."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(tf.nn.softmax(tf.tanh(x @ tf.transpose(x)) * 3) ** 2)
    return tape.gradient(loss, x)


def run(function: Any, *values: np.ndarray) -> tuple[bytes, tuple[int, int, int]]:
    """Runs a function as a program of its own: the bits of its result, and programs compiled, loaded, executions."""
    with device_work() as work:
        result = strategy().run(tf.function(lambda *x: function(*x)), [tf.constant(value) for value in values])
    return result.numpy().tobytes(), (work.counts.programs, work.counts.loads, work.counts.executions)


def test_what_was_compiled_is_loaded_with_the_same_bits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPU_TF_CACHE", "0")
    without, counts = run(gradient, X)
    assert (counts, folder.exists()) == ((1, 0, 1), False)
    monkeypatch.setenv("IPU_TF_CACHE", "1")
    assert run(gradient, X) == (without, (1, 0, 1))
    assert len(entries(folder)) == 1
    assert run(gradient, X) == (without, (0, 1, 1))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_second_process_compiles_nothing(folder: Path) -> None:
    results = []
    for _ in range(2):
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        results.append(json.loads(done.stdout.split("RESULT ")[1]))
    (compiled, loaded, _, losses), (compiled_again, loaded_again, _, same) = results
    assert (compiled, loaded, compiled_again, loaded_again) == (1, 0, 0, 1)
    assert same == losses


def test_variables_and_loops_go_on_as_ever(folder: Path) -> None:
    """Arguments are donated by loaded code too, execution after execution."""
    for loaded in (False, True):
        variable = tf.Variable(np.arange(1000, dtype=np.float32))
        add = tf.function(variable.assign_add)
        with device_work() as work:
            for _ in range(3):
                strategy().run(add, [tf.ones([1000])])
        assert variable.numpy().tolist() == list(range(3, 1003))
        assert (work.counts.programs, work.counts.loads, work.counts.executions) == (not loaded, loaded, 3)


IMAGES, FILTERS, GROUPED = (
    np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape)
    for shape in ((8, 12, 12, 32), (3, 3, 32, 64), (3, 3, 8, 64))
)


def convolved(x: tf.Tensor, filters: tf.Tensor) -> tf.Tensor:
    return tf.nn.conv2d(x, filters, 1, "SAME")


@pytest.mark.skipif(library.loaded() is None, reason="the package was installed without a C compiler")
def test_convolutions_are_kept_as_they_are_without_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, compiled), (second, loaded) = [run(convolved, IMAGES, FILTERS) for _ in range(2)]
    assert (compiled, loaded) == ((1, 0, 1), (0, 1, 1))
    assert len(entries(folder)) == 1
    monkeypatch.setenv("IPU_TF_CACHE", "0")
    without, _ = run(convolved, IMAGES, FILTERS)
    assert first == second == without


@pytest.mark.skipif(not onednn.usable(), reason="jaxlib has oneDNN on Linux x86-64 only")
def test_grouped_convolutions_call_onednn_as_without_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = [run(convolved, IMAGES, GROUPED) for _ in range(2)]
    assert onednn.usable()
    monkeypatch.setenv("IPU_TF_CACHE", "0")
    assert with_it == [run(convolved, IMAGES, GROUPED)] * 2
    assert entries(folder) == set()


def test_results_in_several_blocks_are_not_kept(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """100 MiB of them are laid out as without the cache, and nobody is warned: nobody asked for it."""

    def large(x: tf.Tensor) -> tf.Tensor:
        product = x @ tf.transpose(x)
        return tf.reduce_sum(tf.sort(tf.tanh(product)) + tf.sort(product), 1)

    x = np.linspace(-0.01, 0.01, 3600 * 2, dtype=np.float32).reshape(3600, 2)
    with caplog.at_level(logging.DEBUG, "ipu_tf"):
        bits, counts = run(large, x)
    products = x @ x.T
    wanted = np.sum(np.sort(np.tanh(products)) + np.sort(products), 1)
    np.testing.assert_allclose(np.frombuffer(bits, np.float32), wanted, rtol=1e-4, atol=1e-5)
    assert (counts, entries(folder)) == ((1, 0, 1), set())
    said = [record.levelno for record in caplog.records if "XLA cannot keep" in record.getMessage()]
    assert said == [logging.DEBUG]


def test_results_that_fit_a_heap_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 MiB of intermediate results: two of 20 MiB, which malloc keeps in one block too."""

    def products(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(x @ w @ w @ w, 0)

    x = np.linspace(-1, 1, 20 * 2**20 // 4, dtype=np.float32).reshape(-1, 64)
    w = np.linspace(-0.1, 0.1, 64 * 64, dtype=np.float32).reshape(64, 64)
    monkeypatch.setenv("IPU_TF_CACHE", "0")
    without, counts = run(products, x, w)
    assert counts == (1, 0, 1)
    monkeypatch.setenv("IPU_TF_CACHE", "1")
    assert run(products, x, w) == (without, (1, 0, 1))
    assert len(entries(folder)) == 1
    assert run(products, x, w) == (without, (0, 1, 1))


def test_a_folder_that_the_user_asks_for_takes_its_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={tmp_path / 'mine'}")
    run(gradient, X)
    assert (len(entries(tmp_path / "mine")), folder.exists()) == (1, False)


def test_runs_of_pytest_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IPU_TF_CACHE", raising=False)
    assert user_folder() is None
    monkeypatch.delenv("PYTEST_VERSION")
    assert environment.keeps_executables()
    monkeypatch.setenv("IPU_TF_CACHE", "no")
    with pytest.raises(ValueError, match="IPU_TF_CACHE must be 0 or 1. Received: 'no'"):
        user_folder()


def test_the_launcher_switches_it_off(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import os\nprint(os.environ['IPU_TF_CACHE'])")
    ran = subprocess.run(
        [sys.executable, "-m", "ipu_tf", "--no-cache", "script.py"],
        cwd=tmp_path,
        env={**os.environ, "IPU_TF_CACHE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "0\n", ran.stderr


def test_stats_say_what_was_loaded() -> None:
    line = stats_line(DeviceCounts(programs=1, executions=1, steps=40, loads=2), JaxDevices(1, "cpu"))
    assert line == "ipu_tf: 1 program compiled, 2 loaded, 1 execution, 40 steps, 1 replica on 1 device (cpu)"


@pytest.mark.parametrize("kind", ["others can write", "a file", "root's"])
def test_a_folder_that_cannot_be_used_is_said_once(
    kind: str, folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "a file":
        folder.parent.write_text("")
    elif kind == "root's":  # tests may run as root, who may use any folder
        stock = os.access
        monkeypatch.setattr(
            os, "access", lambda path, *args, **options: path != folder and stock(path, *args, **options)
        )
    else:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    wanted, _ = run(gradient, X)
    assert run(gradient, X) == (wanted, (1, 0, 1))
    [warning] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "compiled programs are not kept; IPU_TF_CACHE=0 asks for that" in warning and str(folder) in warning


def test_a_user_without_a_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert user_folder() is None
    monkeypatch.setattr(Path, "home", lambda: folder)
    assert user_folder() == folder / ".cache" / "ipu_tf" / "executables"


def filled(folder: Path, sizes: list[int]) -> list[Path]:
    """Files named as entries, the first used longest ago."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}{SUFFIX}" for number in range(len(sizes))]
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        path.write_bytes(bytes(size))
        os.utime(path, (1e9 + number,) * 2)
    return paths


@pytest.mark.parametrize(("limit", "left"), [(60, 3), (59, 2), (50, 2), (30, 1), (29, 0), (0, 0)])
def test_entries_unused_for_longest_go_first(limit: int, left: int, tmp_path: Path) -> None:
    first, *others = filled(tmp_path, [10, 20, 30])
    (tmp_path / "other").write_bytes(bytes(1000))
    cache_folder.evict(tmp_path, limit)
    assert entries(tmp_path) == {path.name for path in [first, *others][3 - left :]}
    assert (tmp_path / "other").exists()


def test_a_loaded_entry_counts_as_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(gradient, X)
    [used] = folder.iterdir()
    [large] = filled(folder, [2 * 2**20])
    os.utime(used, (5e8,) * 2)
    assert run(gradient, X)[1] == (0, 1, 1)
    monkeypatch.setattr(user_cache, "LIMIT", 2**20)
    KeptCompilation(folder)(jax.jit(lambda x: [x + 1]).lower(jnp.zeros(3)))
    assert used.exists() and not large.exists()


def test_one_large_program_does_not_empty_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code above a quarter of the limit is not written: eviction would take all others for it."""
    kept = set(filled(folder, [10, 20, 30]))
    monkeypatch.setattr(user_cache, "LIMIT", 2**17)
    constant = np.random.default_rng(0).random(2**16, np.float32)
    KeptCompilation(folder)(jax.jit(lambda x: [x * constant]).lower(jnp.zeros(2**16)))
    assert set(folder.iterdir()) == kept


def test_the_folder_is_bounded_only_where_an_entry_was_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evicted: list[Path] = []
    monkeypatch.setattr(cache_folder, "evict", lambda folder, limit: evicted.append(folder))
    folder.mkdir(parents=True)
    host = lambda x: [jax.pure_callback(np.sin, jax.ShapeDtypeStruct((3,), np.float32), x)]  # noqa: E731
    KeptCompilation(folder)(jax.jit(host).lower(jnp.zeros(3)))
    assert (evicted, entries(folder)) == ([], set())
    KeptCompilation(folder)(jax.jit(lambda x: [x * 2]).lower(jnp.zeros(3)))
    assert (evicted, len(entries(folder))) == ([folder], 1)


def test_the_key_holds_all_constants_and_no_lines_of_source() -> None:
    """Constants beyond what is printed of long ones too; a program on another line is the same."""

    def program(last: float, source: str = "") -> bytes:
        names: dict[str, Any] = {"constant": np.append(np.zeros(2**18, np.float32), np.float32(last))}
        exec(f"{source}def times(x): return [x * constant]", names)  # noqa: S102 - lines of its own
        return jax_compilation.bytecode_of(jax.jit(names["times"]).lower(jnp.zeros(2**18 + 1)))

    assert program(1) == program(1, "\n\n") != program(2)
    assert len(program(1)) < 1.1 * 4 * 2**18


EVICT = """
import sys
from pathlib import Path
from ipu_tf.device.cache.cache_folder import evict
from ipu_tf.device.cache.sealed_file import read_sealed, write_sealed
from ipu_tf.device.cache.cache_entry import SUFFIX
folder = Path(sys.argv[1])
for turn in range(200):
    path = folder / f"{turn % 7}{SUFFIX}"
    write_sealed(path, "compiled", bytes(1000))
    evict(folder, 3000)
    try:
        assert read_sealed(path, "compiled") == bytes(1000)
    except FileNotFoundError:
        pass
"""


def test_processes_that_fill_and_empty_one_folder_at_the_same_time(tmp_path: Path) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", EVICT, str(tmp_path)], stderr=subprocess.PIPE) for _ in range(3)]
    for worker in workers:
        _, errors = worker.communicate()
        assert worker.returncode == 0, errors.decode()[-3000:]
    cache_folder.evict(tmp_path, 3000)
    assert 0 < sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3000
