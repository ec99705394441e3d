"""Compiles a lowered function, or loads what it was compiled to before from the executable cache.

Whatever is wrong with an entry, the program is compiled and the entry is written anew.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
import math
import re
from pathlib import Path
from typing import Any

import jax

from ipu_tf._state.once import first_time
from ipu_tf.device.cache.cache_entry import CacheKey, cache_key_of, read_entry, write_entry
from ipu_tf.device.cache.cache_folder import make_room, touch
from ipu_tf.device.cache.jax_compilation import Compilation, bytecode_of, compile_through
from ipu_tf.device.feeds import connection_type
from ipu_tf.device.op_scopes import names_kept
from ipu_tf.device.timeline import span

_NOT_KEPT = tuple(map(re.compile, (rb"xla_\w*python\w*callback", rb"__onednn\$")))
"""Calls of programs that cannot be kept: the first hold addresses of this process, the second XLA cannot write.

Searched one by one: with a literal start each, which is fast also in megabytes of constants."""
_log = logging.getLogger("ipu_tf")


@dataclasses.dataclass(frozen=True)
class CachedCompilation:
    """Result of a compilation through the executable cache.

    Attributes:
        function: the `jax.stages.Compiled`.
        loaded: whether it was loaded from the cache.
        stored: whether an entry was written.
        program: hash of the StableHLO module; "" if it cannot be kept.
    """

    function: Any
    loaded: bool
    stored: bool
    program: str = ""


def compile_cached(
    lowered: Any,
    directory: Path,
    devices: tuple[Any, ...],
    by_default: bool = False,
    largest: float = math.inf,
) -> CachedCompilation:
    """Compiles a lowered function, or loads what it was compiled to from the cache.

    Args:
        lowered: a `jax.stages.Lowered` of a function of positional arrays that gives a list of arrays.
        directory: the cache.
        devices: the JAX devices it runs on.
        by_default: whether the cache is on without being asked for: its entries are marked when they are used, and
            what XLA cannot keep is no reason to warn.
        largest: bytes of compiled code above which no entry is written.
    """
    module = bytecode_of(lowered, names_kept())
    if any(calls.search(module) for calls in _NOT_KEPT):
        return CachedCompilation(lowered.compile(), loaded=False, stored=False)
    program = hashlib.sha256(module).hexdigest()
    del module  # it holds the program's constants
    stored = []

    def make(compilation: Compilation) -> Any:
        executable = compilation.compile()
        key = cache_key_of(program, lowered, compilation, devices)
        level = logging.DEBUG if by_default else logging.WARNING
        stored.append(_store(directory, key, compilation, executable, level, largest))
        return executable

    try:
        return load_cached(program, lowered, directory, devices, by_default)
    except FileNotFoundError:
        pass
    except Exception as error:  # noqa: BLE001 - whatever is wrong with an entry, compiling is right
        _warn("bad", directory, "a bad entry in the executable cache is not used: its program is compiled again", error)
    return CachedCompilation(compile_through(lowered, make), loaded=False, stored=any(stored), program=program)


def load_cached(
    program: str, lowered: Any, directory: Path, devices: tuple[Any, ...], by_default: bool = False
) -> CachedCompilation:
    """Loads what a program was compiled to.

    Args:
        program: hash of its StableHLO module.
        lowered: a `jax.stages.Lowered` of it, or of another with the same arguments and results.
        directory: as for `compile_cached`; `devices` and `by_default` too.

    Raises:
        OSError: if the entry cannot be read; FileNotFoundError if there is none.
        Exception: whatever else is wrong with it.
    """

    def load(compilation: Compilation) -> Any:
        key = cache_key_of(program, lowered, compilation, devices)
        executable = compilation.load(read_entry(directory / key.file_name, key))
        if by_default:
            touch(directory / key.file_name)
        return executable

    with span("Compile", "load from the executable cache"):
        return CachedCompilation(compile_through(lowered, load), loaded=True, stored=False, program=program)


def _store(
    directory: Path, key: CacheKey, compilation: Compilation, executable: Any, level: int, largest: float
) -> bool:
    """Keeps an executable of at most `largest` bytes; logs at `level` if it cannot be kept. Returns whether it was."""
    path = directory / key.file_name
    try:
        code = compilation.code_of(executable)
        if len(code) > largest:
            _log.log(
                level, "ipu_tf: a program of %d bytes is not kept: at most %d bytes of each are.", len(code), largest
            )
            return False
        make_room(path)
        write_entry(path, key, code)
    except OSError as error:
        _warn("full", directory, "the executable cache cannot be written to, so the next process compiles again", error)
    except (NotImplementedError, ValueError, jax.errors.JaxRuntimeError) as error:
        _log.log(level, "ipu_tf: XLA cannot keep this program, so the next process compiles again: %s", error)
    else:
        kind = "compiled" if connection_type.attached() else "pre-compiled"
        _log.log(min(level, logging.INFO), "ipu_tf: the %s program has been saved to %s", kind, path)
        return True
    return False


def _warn(what: str, directory: Path, text: str, error: Exception) -> None:
    """Warns of the first cache error in a folder; logs later ones at level INFO."""
    first = first_time("executable cache", what, directory)
    said = f"{type(error).__name__}: {error}".partition("\n")[0]
    _log.log(logging.WARNING if first else logging.INFO, "ipu_tf: %s ('%s'). %s", text, directory, said)
