"""Fixtures and settings of all tests: quiet TensorFlow, CPU only, fixed seeds, no network."""

from __future__ import annotations

import atexit
import gc
import os
import random
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest


def _remove_folder(folder: Path, owner: int) -> None:
    """Removes a folder at the end of the process that made it; a forked process leaves it."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


# Before TensorFlow and JAX are imported, which read these once. What the caller has set stays.
for _name, _value in {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "KERAS_BACKEND": "tensorflow",
    "IPU_TF_CACHE": "0",
}.items():
    os.environ.setdefault(_name, _value)

# Processes that use IPUs say so in files there: what tests kill leaves none to the user's `gc-monitor`. Another process
# of the same tests, such as a worker, has its parent's folder.
_RUNTIME = "ipu_tf_tests-"
if not Path(os.environ.get("XDG_RUNTIME_DIR", "")).name.startswith(_RUNTIME):
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp(prefix=_RUNTIME)
    atexit.register(_remove_folder, Path(os.environ["XDG_RUNTIME_DIR"]), os.getpid())

# Whether a machine is busy says nothing about a strategy. A commit passes or fails alike in each run; who looks for
# cases that nobody saw yet draws others: `python -m pytest --hypothesis-profile search`.
for _profile, _alike in (("any machine", True), ("search", False)):
    hypothesis.settings.register_profile(
        _profile, deadline=None, derandomize=_alike, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
hypothesis.settings.load_profile("any machine")

#: Files that take minutes, by name: they are begun first, lest one process is left with them at the end.
LONG = (
    "test_pipeline_run.py",
    "test_keras_memory.py",
    "test_keras_on_jax.py",
    "test_both_backends.py",
    "test_keras_applications.py",
    "test_keras_split.py",
    "test_keras_tables.py",
    "test_examples.py",
)

#: Variables that TensorFlow and JAX set when a test is the first to import them.
SET_BY_IMPORTS = {
    *("ENABLE_RUNTIME_UPTIME_TELEMETRY", "HDF5_PLUGIN_PATH", "KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"),
    *("TF2_BEHAVIOR", "TPU_ML_PLATFORM", "TPU_ML_PLATFORM_VERSION", "TPU_SKIP_MDS_QUERY"),
}

#: Memory mappings of a process above which compiled code of earlier files is dropped; Linux gives it 65,530.
MOST_MAPPINGS = 20_000

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first, in the order of `LONG`; the others as they came."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


def pytest_collection_finish() -> None:
    """Half a million objects of imported packages live as long as the process."""
    _freeze_objects()


def _free_compiled_code() -> None:
    """Drops what JAX keeps of earlier files once it takes a third of the memory mappings that Linux gives a process.

    Each compiled function needs some. Near the limit XLA ends the process, wherever it happens to be.
    """
    jax = sys.modules.get("jax")
    if jax is None or _mappings() < MOST_MAPPINGS:
        return
    gc.unfreeze()  # what was frozen, and is dropped since, may be in cycles
    jax.clear_caches()
    gc.collect()


def _mappings() -> int:
    """How many memory mappings the process has; 0 where the system does not say."""
    maps = Path("/proc/self/maps")
    return len(maps.read_bytes().splitlines()) if maps.exists() else 0


def _freeze_objects() -> None:
    """Takes what lives now from the garbage collector: `keras.utils.clear_session`, in nearly every test, visits all.

    What the tests of a file leave in caches of TensorFlow and JAX made each test of a later file 3 seconds longer.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test starts from the same random state, whichever tests ran before it."""
    random.seed(0)
    np.random.seed(0)
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None:
        tensorflow.random.set_seed(0)


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A test leaves the process's environment as it found it: processes that later tests start inherit it."""
    before = dict(os.environ)
    yield
    expected = {"PYTEST_CURRENT_TEST"} | (SET_BY_IMPORTS - before.keys())
    changed = {name for name, _ in before.items() ^ os.environ.items()} - expected
    assert not changed, f"the test changed environment variables and left them so: {sorted(changed)}"


@pytest.fixture
def graphcore_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Configurations that are made in the test have `graphcore_rules = True`, as under the launcher."""
    monkeypatch.setattr("ipu_tf._config.default_rules.RULES_BY_DEFAULT.value", True)


@pytest.fixture(autouse=True, scope="module")
def cleared() -> Iterator[None]:
    """Every file starts with a process that remembers nothing of the files before, if it has imported `ipu_tf`."""
    emulation = sys.modules.get("ipu_tf.emulation")
    if emulation is not None:
        emulation.clear_session()
    _free_compiled_code()
    _freeze_objects()
    before = _patches_for_other_programs()
    yield
    left = _patches_for_other_programs() - before
    assert not left, f"the file's tests patched their process as the launcher does, and left it so: {sorted(left)}"


def _patches_for_other_programs() -> set[str]:
    """What is patched of other packages in this process as under the launcher, or after `install_aliases()`."""
    patches = sys.modules.get("ipu_tf.patches")
    if patches is None:
        return set()
    others = (patches.When.ALIASES, patches.When.LAUNCHER)
    targets = {target for target, patch in patches.installed() if patch.when in others}
    return {target for target in targets if not target.startswith(("ipu_tf", "keras_ipu"))}


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """A test that reaches for the network fails at once."""
    connect = socket.socket.connect

    def connect_locally(self: socket.socket, address: object) -> None:
        if isinstance(address, tuple) and address[0] not in LOCAL_HOSTS:
            raise OSError(f"tests do not use the network; received the address {address!r}")
        connect(self, address)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", connect_locally)
        yield
