"""Compiles a lowered function, or loads what it was compiled to before from the executable cache.

Whatever is wrong with an entry, the program is compiled and the entry is written anew.
"""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path
from typing import Any

import jax

from ipu_tf._state.once import first_time
from ipu_tf.device.cache.cache_entry import CacheKey, cache_key_of, read_entry, write_entry
from ipu_tf.device.cache.cache_folder import make_room
from ipu_tf.device.cache.jax_compilation import Compilation, compile_through
from ipu_tf.device.feeds import connection_type

_NOT_KEPT = re.compile(r"@xla_\w*python\w*callback|__onednn\$")
"""Calls of programs that cannot be kept: the first hold addresses of this process, the second XLA cannot write."""
_log = logging.getLogger("ipu_tf")


def compile_cached(lowered: Any, directory: Path, devices: tuple[Any, ...]) -> tuple[Any, bool]:
    """Returns `lowered.compile()`, loaded from the cache if possible, and whether it was loaded.

    Args:
        lowered: a `jax.stages.Lowered` of a function of positional arrays that gives a list of arrays.
        directory: the cache.
        devices: the JAX devices it runs on.
    """
    text = lowered.as_text()
    if _NOT_KEPT.search(text):
        return lowered.compile(), False
    program = hashlib.sha256(text.encode()).hexdigest()

    def load(compilation: Compilation) -> Any:
        key = cache_key_of(program, lowered, compilation, devices)
        return compilation.load(read_entry(directory / key.file_name, key))

    def make(compilation: Compilation) -> Any:
        executable = compilation.compile()
        _store(directory, cache_key_of(program, lowered, compilation, devices), compilation, executable)
        return executable

    try:
        return compile_through(lowered, load), True
    except FileNotFoundError:
        pass
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an entry, compiling is right
        _warn("bad", directory, "a bad entry in the executable cache is not used: its program is compiled again", error)
    return compile_through(lowered, make), False


def _store(directory: Path, key: CacheKey, compilation: Compilation, executable: Any) -> None:
    path = directory / key.file_name
    try:
        code = compilation.code_of(executable)
        make_room(path)
        write_entry(path, key, code)
    except OSError as error:
        _warn("full", directory, "the executable cache cannot be written to, so the next process compiles again", error)
    except (NotImplementedError, ValueError, jax.errors.JaxRuntimeError) as error:
        _log.warning("ipu_tf: XLA cannot keep this program, so the next process compiles again: %s", error)
    else:
        kind = "compiled" if connection_type.attached() else "pre-compiled"
        _log.info("ipu_tf: the %s program has been saved to %s", kind, path)


def _warn(what: str, directory: Path, text: str, error: Exception) -> None:
    """Warns of the first cache error in a folder; logs later ones at level INFO."""
    first = first_time("executable cache", what, directory)
    said = f"{type(error).__name__}: {error}".partition("\n")[0]
    _log.log(logging.WARNING if first else logging.INFO, "ipu_tf: %s ('%s'). %s", text, directory, said)
