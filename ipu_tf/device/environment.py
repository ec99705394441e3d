"""Reads environment variables: the only module that does.

Every variable the project understands has a function here; a test checks that nothing else reads `os.environ`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

_DEFAULT_IPUS = 16
_DEFAULT_TIMEOUT = 600.0
_OWN = (
    "IPU_TF_FEED_TIMEOUT",
    "IPU_TF_ALIASES",
    "IPU_TF_NATIVE",
    "IPU_TF_KEEP_MEMORY",
    "IPU_TF_CACHE",
    "IPU_TF_INSTANCE_TIMEOUT",
    "IPU_TF_INSTANCE_MEMORY",
    "IPU_TF_TENSORFLOW",
)
_LOGS = ("POPLAR_LOG_LEVEL", "POPLAR_LOG_DEST")
_OTHERS = ("POPLAR_ENGINE_OPTIONS", "PVTI_OPTIONS", "GCDA_OPTIONS")
_INSTANCES = (
    *("POPDIST_NUM_INSTANCES", "POPDIST_INSTANCE_INDEX", "POPDIST_LOCAL_INSTANCE_INDEX"),
    *("POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS", "POPDIST_REPLICA_INDEX_OFFSET"),
    *("POPDIST_NUM_IPUS_PER_REPLICA", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    *("OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"),
)


def ipu_count() -> int:
    """Returns the number of emulated IPUs of this machine: `TF_IPU_COUNT`, by default 16.

    Raises:
        ValueError: if the variable is not a positive whole number.
    """
    text = os.environ.get("TF_IPU_COUNT", "").strip()
    if not text:
        return _DEFAULT_IPUS
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"TF_IPU_COUNT must be a positive whole number of IPUs. Received: {text!r}.")
    return int(text)


def ci_ipu_count() -> int | None:
    """Returns the number of IPUs that tests may use: `TF_IPU_COUNT`, which may be 0 here; None if it is not set.

    Raises:
        ValueError: if the variable is not a whole number.
    """
    text = os.environ.get("TF_IPU_COUNT", "").strip()
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(f"TF_IPU_COUNT must be a whole number of IPUs. Received: {text!r}.")
    return int(text)


def feed_timeout() -> float:
    """Returns the timeout for infeed elements in seconds: `IPU_TF_FEED_TIMEOUT`, by default 600.

    Raises:
        ValueError: if the variable is not a positive number.
    """
    return _seconds("IPU_TF_FEED_TIMEOUT")


def instance_timeout() -> float:
    """Returns for how many seconds an instance waits for another: `IPU_TF_INSTANCE_TIMEOUT`, by default 600.

    Raises:
        ValueError: if the variable is not a positive number.
    """
    return _seconds("IPU_TF_INSTANCE_TIMEOUT")


def shares_memory() -> bool:
    """Returns whether the instances of one host may share memory: `IPU_TF_INSTANCE_MEMORY`, 1 (the default) or 0.

    Raises:
        ValueError: if the variable is something else.
    """
    return _switch("IPU_TF_INSTANCE_MEMORY")


def coordinator_host() -> str:
    """Returns the host at which instance 0 of several listens, by `JAX_COORDINATOR_ADDRESS`; empty if it is not set."""
    return os.environ.get("JAX_COORDINATOR_ADDRESS", "").rpartition(":")[0].strip("[]")


def _seconds(variable: str) -> float:
    text = os.environ.get(variable, "").strip()
    if not text:
        return _DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"{variable} must be a positive number of seconds. Received: {text!r}.")
    return seconds


def keeps_freed_memory() -> bool:
    """Returns whether freed memory is kept for the next execution: `IPU_TF_KEEP_MEMORY`, 1 (the default) or 0.

    Raises:
        ValueError: if the variable is something else.
    """
    return _switch("IPU_TF_KEEP_MEMORY")


def allows_native_code() -> bool:
    """Returns whether the package's native kernels may be used: `IPU_TF_NATIVE`, 1 (the default) or 0.

    Raises:
        ValueError: if the variable is something else.
    """
    return _switch("IPU_TF_NATIVE")


def keeps_executables() -> bool:
    """Returns whether compiled programs are kept in the user's cache folder: `IPU_TF_CACHE`, 0 or 1.

    It is 1 by default, and 0 in runs of pytest, which sets `PYTEST_VERSION`: what tests count is not to depend on
    programs that were compiled before.

    Raises:
        ValueError: if the variable is something else.
    """
    return _switch("IPU_TF_CACHE", "0" if "PYTEST_VERSION" in os.environ else "1")


def keep_no_executables() -> None:
    """Sets `IPU_TF_CACHE` to 0, for this process and its child processes."""
    os.environ["IPU_TF_CACHE"] = "0"


def user_cache_folder() -> Path:
    """Returns the folder for caches of this user: `XDG_CACHE_HOME`, by default `~/.cache`.

    Raises:
        RuntimeError: if there is no such variable, and the user has no home.
    """
    text = os.environ.get("XDG_CACHE_HOME", "")
    return Path(text) if os.path.isabs(text) else Path.home() / ".cache"


def runtime_folder() -> Path:
    """Returns the folder of this user for what lasts as long as processes do.

    It is `ipu_tf` in `XDG_RUNTIME_DIR`, by default `ipu_tf-<user>` in the folder for temporary files.
    """
    text = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(text) / "ipu_tf" if os.path.isabs(text) else Path(tempfile.gettempdir()) / f"ipu_tf-{os.getuid()}"


def thread_count() -> int:
    """Returns the number of threads that XLA computes with: `NPROC`, by default the processors of this process."""
    text = os.environ.get("NPROC", "").strip()
    if text.isdigit():
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _switch(variable: str, default: str = "1") -> bool:
    """Returns whether a variable is 1 and not 0."""
    text = os.environ.get(variable, "").strip() or default
    if text not in ("0", "1"):
        raise ValueError(f"{variable} must be 0 or 1. Received: {text!r}.")
    return text == "1"


def under_address_sanitizer() -> bool:
    """Returns whether the process is set up for AddressSanitizer: `ASAN_OPTIONS` is set."""
    return "ASAN_OPTIONS" in os.environ


#: The variable by which TensorFlow takes `tf.keras` from the package `tf_keras`.
LEGACY_KERAS = "TF_USE_LEGACY_KERAS"


def legacy_keras() -> bool:
    """Returns whether TensorFlow takes `tf.keras` from the package `tf_keras`: `TF_USE_LEGACY_KERAS`."""
    return os.environ.get(LEGACY_KERAS) in ("true", "True", "1")


def poplar_flags() -> str:
    """Returns the text of `TF_POPLAR_FLAGS`, empty if it is not set; `ipu_tf._config.flags` parses it."""
    return os.environ.get("TF_POPLAR_FLAGS", "")


@contextlib.contextmanager
def poplar_flag(flag: str) -> Iterator[None]:
    """Context manager: adds a flag to `TF_POPLAR_FLAGS`."""
    before = os.environ.get("TF_POPLAR_FLAGS")
    os.environ["TF_POPLAR_FLAGS"] = f"{before or ''} {flag}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TF_POPLAR_FLAGS"]
        else:
            os.environ["TF_POPLAR_FLAGS"] = before


def engine_options() -> str:
    """Returns the text of `POPLAR_ENGINE_OPTIONS`, which `ipu_tf._config.engine_options` parses; empty if not set."""
    return os.environ.get("POPLAR_ENGINE_OPTIONS", "")


def log_level() -> str:
    """Returns the text of `POPLAR_LOG_LEVEL` in capitals, empty if it is not set."""
    return os.environ.get("POPLAR_LOG_LEVEL", "").strip().upper()


def log_destination() -> str:
    """Returns the text of `POPLAR_LOG_DEST`, empty if it is not set."""
    return os.environ.get("POPLAR_LOG_DEST", "").strip()


def pvti_options() -> str:
    """Returns the text of `PVTI_OPTIONS`, which `ipu_tf._pvti.session` parses; empty if it is not set."""
    return os.environ.get("PVTI_OPTIONS", "").strip()


def fault_options() -> str:
    """Returns the text of `GCDA_OPTIONS`, options for faults of the hardware; empty if it is not set."""
    return os.environ.get("GCDA_OPTIONS", "")


def instance_variables() -> dict[str, str]:
    """Returns the variables that are set of those that say which of several instances a process is, by name."""
    found = {name: os.environ.get(name, "").strip() for name in _INSTANCES}
    return {name: text for name, text in found.items() if text}


def tensorflow_version() -> int | None:
    """Returns for which TensorFlow launched programs are: `IPU_TF_TENSORFLOW`, 1 or 2; None if it is not set.

    Raises:
        ValueError: if the variable is another text.
    """
    text = os.environ.get("IPU_TF_TENSORFLOW", "").strip()
    if text not in ("", "1", "2"):
        raise ValueError(f"IPU_TF_TENSORFLOW must be 1 or 2, the program's TensorFlow. Received: {text!r}.")
    return int(text) if text else None


def aliases_enabled() -> bool:
    """Returns whether child processes of a launched program install Graphcore's module names: `IPU_TF_ALIASES` is 1."""
    return os.environ.get("IPU_TF_ALIASES", "").strip() == "1"


def enable_aliases_in_children(folder: str) -> None:
    """Sets `IPU_TF_ALIASES` unless it is set, and prepends a folder to `PYTHONPATH`, for child processes.

    Args:
        folder: has the `sitecustomize` module that installs the names when Python starts.
    """
    os.environ.setdefault("IPU_TF_ALIASES", "1")
    before = os.environ.get("PYTHONPATH", "")
    if folder not in before.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *([before] if before else [])])


def python_path(folder: str) -> str:
    """Returns `PYTHONPATH` with a folder before what it has, once."""
    return os.pathsep.join([folder, *(entry for entry in python_path_folders() if entry != folder)])


def python_path_folders() -> tuple[str, ...]:
    """Returns the folders of `PYTHONPATH`."""
    return tuple(entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry)


def of_child(own: Mapping[str, str], folder: str) -> dict[str, str]:
    """Returns the environment of a child process: this one's, with variables of its own, and Graphcore's modules.

    Args:
        own: the variables that it has of its own.
        folder: as for `enable_aliases_in_children`.
    """
    aliases = {"IPU_TF_ALIASES": os.environ.get("IPU_TF_ALIASES", "1"), "PYTHONPATH": python_path(folder)}
    return {**os.environ, **aliases, **own}


def text_of(variable: str) -> str:
    """Returns the text of a variable that the user named; empty if it is not set."""
    return os.environ.get(variable, "")


def xla_flags() -> str:
    """Returns the text of the environment variables with XLA's flags; empty if none is set."""
    return " ".join(os.environ[name] for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS") if os.environ.get(name))


def variables_set() -> dict[str, str]:
    """Returns the variables among those of this module that are set, by name: those of this project and Graphcore's."""
    names = (*_OWN, "TF_POPLAR_FLAGS", "TF_IPU_COUNT", *_LOGS, *_OTHERS)
    return {name: os.environ[name] for name in (*names, "XLA_FLAGS") if name in os.environ}
