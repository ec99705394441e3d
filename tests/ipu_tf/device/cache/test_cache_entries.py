"""Executable cache entries: bad ones are replaced and logged once, exchanged ones are never run."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import serialize_executable

import ipu_tf as ipu
from ipu_tf.device.cache import cache_entry, cached_compilation, executable_cache, sealed_file
from ipu_tf.device.cache.cache_folder import CacheFolderError
from ipu_tf.device.cache.executable_cache import CachedFunction
from ipu_tf.device.cache.sealed_file import UntrustedFile
from ipu_tf.emulation import clear_session
from tests.helpers.file_mutations import mutated

X = np.arange(5, dtype=np.float32)
FACTORS = (2.0, 3.0, 5.0)


def times(directory: Path, factor: float = 2.0) -> CachedFunction:
    """`x * factor`, new to this process."""
    return CachedFunction(lambda x: x * factor, (), directory)


def computed(directory: Path, factor: float = 2.0) -> bool:
    """Runs it and checks the result; whether it had to be compiled."""
    function = times(directory, factor)
    np.testing.assert_array_equal(function(jnp.asarray(X)), X * np.float32(factor))
    return function.take_compiled()


def filled(directory: Path) -> list[Path]:
    """A cache with an entry for each factor, in their order."""
    entries: list[Path] = []
    directory.mkdir(exist_ok=True)
    for factor in FACTORS:
        assert computed(directory, factor)
        entries += [path for path in directory.iterdir() if path not in entries]
    return entries


def payload(path: Path) -> bytes:
    """Contents of the seal of an entry."""
    return sealed_file.read_sealed(path, "compiled", 2)


@pytest.fixture(autouse=True)
def nothing_told() -> None:
    """Warnings are given anew in each test."""
    clear_session()


def test_exchanged_entries_are_not_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for turn in range(30):
        entries = filled(tmp_path / str(turn))
        contents = [path.read_bytes() for path in entries]
        for path, other in zip(entries, contents[1:] + contents[:1], strict=True):
            path.write_bytes(other)
        assert [computed(tmp_path / str(turn), factor) for factor in FACTORS] == [True] * 3
        assert [computed(tmp_path / str(turn), factor) for factor in FACTORS] == [False] * 3
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 30, "one for each folder"
    assert "is an executable of something else: program must be" in warnings[0].getMessage()


def test_an_entry_says_what_it_was_compiled_from(tmp_path: Path) -> None:
    [path, *_] = filled(tmp_path)
    about = json.loads(payload(path).partition(b"\n")[0])
    assert about["arguments"] == ["float32[5]"]
    assert (about["jax"], about["jaxlib"]) == (jax.__version__, jax.lib.__version__)
    assert set(about) >= {"program", "options", "backend", "devices", "processor", "xla_flags"}


def test_an_entry_of_another_machine_is_not_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    [path, *_] = filled(tmp_path)
    line, _, code = payload(path).partition(b"\n")
    other = json.dumps(json.loads(line) | {"processor": "another"}, sort_keys=True).encode()
    sealed_file.write_sealed(path, "compiled", other + b"\n" + code, 2)
    assert computed(tmp_path)
    assert "processor must be" in caplog.text and "another" in caplog.text


def test_compile_options_are_part_of_the_key(tmp_path: Path) -> None:
    devices = tuple(jax.local_devices()[:1])

    def compiled(**options: Any) -> bool:
        lowered = jax.jit(lambda x: [x * 2], compiler_options=options).lower(X)
        return not cached_compilation.compile_cached(lowered, tmp_path, devices).loaded

    assert [compiled(), compiled()] == [True, False]
    fast = {"xla_cpu_enable_fast_math": True}
    assert [compiled(**fast), compiled(**fast)] == [True, False]
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("unpickled")

    for name in ("loads", "load", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    monkeypatch.setattr(serialize_executable, "deserialize_and_load", refuse)
    assert not computed(tmp_path)


class Touching:
    """An object whose pickle makes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("version", [1, 2])
def test_a_forged_pickle_runs_no_code(version: int, tmp_path: Path) -> None:
    [path, *_] = filled(tmp_path / "cache")
    forged = pickle.dumps(Touching(tmp_path / "run"))
    for contents in (forged, payload(path).partition(b"\n")[0] + b"\n" + forged):
        sealed_file.write_sealed(path, "compiled", contents, version)
        assert computed(tmp_path / "cache")
    assert not (tmp_path / "run").exists()
    assert not computed(tmp_path / "cache")


def old_format(path: Path) -> None:
    """An entry as it was before entries said what they are of."""
    compiled = jax.jit(lambda x: x * 2).lower(X).compile()
    sealed_file.write_sealed(path, "compiled", pickle.dumps(serialize_executable.serialize(compiled)))


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").write_text("kept")


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def an_endless_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def not_executable(path: Path) -> None:
    sealed_file.write_sealed(path, "compiled", payload(path).partition(b"\n")[0] + b"\nnothing", 2)


def no_code(path: Path) -> None:
    sealed_file.write_sealed(path, "compiled", payload(path).partition(b"\n")[0] + b"\n", 2)


BAD: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "old format": old_format,
    "folder": a_folder,
    "pipe": a_pipe,
    "dangling link": a_dangling_link,
    "no executable": not_executable,
    "no code": no_code,
    "endless": an_endless_device,
    "group can write": lambda path: path.chmod(0o660),
    "others can write": lambda path: path.chmod(0o606),
    "of another user": lambda path: os.chown(path, 12345, -1),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_entry_is_replaced_and_said_once(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if kind == "of another user" and os.geteuid() != 0:
        pytest.skip("only root can give a file to another user")
    [path, *_] = filled(tmp_path)
    BAD[kind](path)
    assert computed(tmp_path)
    assert not computed(tmp_path)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == (kind != "dangling link")
    assert path.is_file() and path.stat().st_mode & 0o777 == 0o600
    assert [one.read_text() for one in tmp_path.glob("*.set_aside/*")] == ["kept"] * (kind == "folder")


@pytest.mark.parametrize(
    "error", [PermissionError, OSError, EOFError, MemoryError, jax.errors.JaxRuntimeError, KeyError]
)
def test_any_failure_to_read_is_healed(error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)

    def fail(*_: Any, **__: Any) -> Any:
        raise error("no")

    with monkeypatch.context() as patched:
        patched.setattr(cached_compilation, "read_entry", fail)
        assert computed(tmp_path)
    assert not computed(tmp_path)


def test_damaged_and_exchanged_entries(tmp_path: Path) -> None:
    """`python -m tests.helpers.file_fuzz --format cache --cases 1000` does more of these."""
    generator = np.random.default_rng(0)
    entries = filled(tmp_path)
    whole = [path.read_bytes() for path in entries]
    for _ in range(60):
        which = int(generator.integers(len(entries)))
        bad = mutated(whole[which], whole[which - 1], generator)
        entries[which].write_bytes(bad)
        assert computed(tmp_path, FACTORS[which]) == (bad != whole[which])
        assert not computed(tmp_path, FACTORS[which])


@pytest.fixture
def unused() -> Iterator[None]:
    yield
    executable_cache.use("")


@pytest.mark.usefixtures("unused")
def test_the_folder_is_made_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        executable_cache.use(str(tmp_path / "a" / "cache"))
    finally:
        os.umask(before)
    assert (tmp_path / "a" / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("unused")
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o702])
def test_a_folder_that_others_can_write_to_is_refused(mode: int, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(UntrustedFile, match="nobody but you may be able to write to it.*chmod go-w"):
        executable_cache.use(str(tmp_path / "cache"))
    assert executable_cache.directory() is None
    (tmp_path / "cache").chmod(0o755)
    executable_cache.use(str(tmp_path / "cache"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.usefixtures("unused")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(UntrustedFile, match="owned by user 12345"):
        executable_cache.use(str(tmp_path))


@pytest.mark.usefixtures("unused")
def test_a_path_that_is_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "cache"):
        monkeypatch.setenv("TF_POPLAR_FLAGS", f"--executable_cache_path={path}")
        with pytest.raises(CacheFolderError, match="must be a folder"):
            ipu.config.IPUConfig().configure_ipu_system()


@contextlib.contextmanager
def failing_writes(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(cache_entry, "write_sealed", fail)
        yield


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_cache_that_cannot_be_written_to_is_said_once(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with failing_writes(monkeypatch, number):
        assert [computed(tmp_path, factor) for factor in FACTORS] == [True] * 3
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "cannot be written to" in warnings[0] and os.strerror(number) in warnings[0]


FULL_DISK = """
import logging, resource, sys
from pathlib import Path
import numpy as np
from tests.ipu_tf.device.cache.test_cache_entries import computed
logging.basicConfig(stream=sys.stdout, format="%(message)s")
assert not computed(Path(sys.argv[1]), 2.0)
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
assert computed(Path(sys.argv[1]), 7.0)
assert computed(Path(sys.argv[1]), 8.0)
assert not computed(Path(sys.argv[1]), 3.0)
"""


def test_no_room_loses_nothing(tmp_path: Path) -> None:
    """Files may be of 1,000 bytes, as on a full disk: entries before stay, nothing half written does."""
    before = {path: path.read_bytes() for path in filled(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("cannot be written to") == 1 and "File too large" in done.stdout
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_rename_that_takes_its_time_hides_what_is_not_there_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a slow network file system: others compile for themselves meanwhile, and load it afterwards."""
    renames, may_rename, stock = threading.Event(), threading.Event(), os.replace

    def slow(source: Any, target: Any) -> None:
        renames.set()
        assert may_rename.wait(60)
        stock(source, target)

    monkeypatch.setattr(os, "replace", slow)
    compiled: list[bool] = []
    writer = threading.Thread(target=lambda: compiled.append(computed(tmp_path)))
    writer.start()
    assert renames.wait(60)
    monkeypatch.setattr(os, "replace", stock)
    assert list(tmp_path.glob(f"*{cache_entry.SUFFIX}")) == []
    assert [computed(tmp_path), computed(tmp_path)] == [True, False]
    may_rename.set()
    writer.join()
    assert compiled == [True] and not computed(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1 and "bad entry" not in caplog.text


FILL = """
import os, random, sys, time
from pathlib import Path
from tests.ipu_tf.device.cache.test_cache_entries import computed
stock = os.replace
def slow(source, target):  # as a network file system may be
    time.sleep(random.uniform(0, 0.03))
    stock(source, target)
os.replace = slow
for _ in range(3):
    for factor in range(2, 8):
        computed(Path(sys.argv[1]), float(factor))
        for path in sorted(Path(sys.argv[1]).glob("*poplar_exec"))[:1]:
            path.write_bytes(path.read_bytes()[:-1])
"""


def test_processes_that_fill_and_damage_one_cache_at_the_same_time(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILL, str(tmp_path)]
    fillers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    for filler in fillers:
        _, errors = filler.communicate()
        assert filler.returncode == 0, errors.decode()[-3000:]
    for factor in range(2, 8):
        computed(tmp_path, float(factor))
        assert not computed(tmp_path, float(factor))
    assert len(list(tmp_path.iterdir())) == 6
