"""Reads and writes entries of the executable cache: a serialized XLA executable with the key that it was compiled for.

    ipu_tf compiled 2 sha256=4f... length=1234 (emulated IPU: no popef, no IPU can run it)
    {"arguments": ["float32[5]"], "jax": "0.10.2", "jaxlib": "0.10.2", "program": "9c...", ...}
    <the executable, as XLA serializes it>

The name of an entry is the hash of its second line, and an entry is used only if that line is, to the byte, what the
program at hand would be compiled from. So an entry that was renamed or exchanged is not used.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from ipu_tf.device import environment
from ipu_tf.device.cache.jax_compilation import Compilation
from ipu_tf.device.cache.sealed_file import ForeignFile, read_sealed, write_sealed

SUFFIX = ".emulated.poplar_exec"
"""Suffixes of the names of entries: as programs look for them, and saying what they are."""
_KIND, _VERSION = "compiled", 2


@dataclasses.dataclass(frozen=True)
class CacheKey:
    """Cache key of an executable: everything that it depends on.

    Attributes:
        program: hash of the StableHLO module's bytecode.
        arguments: dtype and shape of each argument, and whether it is donated.
        options: hash of XLA's compile options.
        jax: version.
        jaxlib: version.
        backend: platform and version of XLA's backend.
        devices: number and kind of each device.
        xla_flags: flags for XLA in the environment.
        processor: this machine's kind of processor with its instruction sets.
        threads: how many XLA divides the program among.
    """

    program: str
    arguments: tuple[str, ...]
    options: str
    jax: str
    jaxlib: str
    backend: str
    devices: tuple[str, ...]
    xla_flags: str
    processor: str
    threads: int

    @functools.cached_property
    def line(self) -> bytes:
        """Returns the key as a line of JSON."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True).encode() + b"\n"

    @property
    def file_name(self) -> str:
        """Returns the file name of the entry: a hash of its key."""
        return hashlib.sha256(self.line).hexdigest() + SUFFIX


def cache_key_of(program: str, lowered: Any, compilation: Compilation, devices: Sequence[Any]) -> CacheKey:
    """Returns the cache key of a lowered function.

    Args:
        program: hash of the StableHLO module's bytecode.
        lowered: the `jax.stages.Lowered` that it is of.
        compilation: how JAX would compile it.
        devices: the JAX devices it runs on.
    """
    return CacheKey(
        program=program,
        arguments=tuple(map(_argument_text, jax.tree.leaves(lowered.args_info))),
        options=hashlib.sha256(compilation.options_bytes).hexdigest(),
        jax=jax.__version__,
        jaxlib=importlib.metadata.version("jaxlib"),
        backend=f"{devices[0].client.platform} {devices[0].client.platform_version}",
        devices=tuple(f"{device.id}: {device.device_kind}" for device in devices),
        xla_flags=environment.xla_flags(),
        processor=_processor(),
        threads=environment.thread_count(),
    )


def read_entry(path: Path, key: CacheKey) -> bytes:
    """Reads the serialized executable of an entry.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if there is none.
        UntrustedFile: if others than this user can write to it.
        DamagedFile: if it is not as it was written.
        ForeignFile: if it is no entry, or of another program, machine or version.
    """
    payload = read_sealed(path, _KIND, _VERSION, private=True)
    if payload.startswith(key.line):
        return payload[len(key.line) :]
    raise ForeignFile(f"'{path}' is an executable of something else: {_difference(payload, key)}.")


def write_entry(path: Path, key: CacheKey, code: bytes) -> None:
    """Writes an entry; replaces an existing one of the same name.

    Raises:
        OSError: if it cannot be written.
    """
    write_sealed(path, _KIND, key.line + code, _VERSION, private=True)


def _difference(payload: bytes, key: CacheKey) -> str:
    """Describes how an entry's key differs from the wanted one."""
    try:
        found = dict(json.loads(payload.partition(b"\n")[0]))
    except (ValueError, TypeError, RecursionError):
        return "it does not say of what"
    wanted = json.loads(key.line)
    names = sorted(name for name in wanted if found.get(name) != wanted[name])
    return "; ".join(f"{name} must be {_short(wanted[name])}, received {_short(found.get(name))}" for name in names)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _argument_text(argument: Any) -> str:
    shape = ",".join(map(str, argument.shape))
    return f"{argument.dtype}[{shape}]{' donated' if argument.donated else ''}"


@functools.cache
def _processor() -> str:
    """Returns this machine's processor model with its instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.node()}"
    processor = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return f"{platform.machine()} {hashlib.sha256(repr(sorted(set(processor))).encode()).hexdigest()}"
