"""Index of the executable cache by what programs are traced from, so that a process that finds one need not trace it.

    what it is traced from, versions, settings ──hash──► <hash>.emulated.traced
                                                              │ hash of the StableHLO module, types of the results
                                                              ▼
                                     <hash>.emulated.poplar_exec, the executable

Tracing, this device's own rewriting and JAX's lowering take longer than loading the executable of a deep network. They
give the same module if they start from the same: the program that a front end made, these arguments, this version of
this package and of JAX, these settings. So all of that is in the key, and it is compared as a whole, not by its hash.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device import environment
from ipu_tf.device.cache import jax_compilation
from ipu_tf.device.cache.sealed_file import DamagedFile, read_sealed, write_sealed
from ipu_tf.device.convolution.native import library

SUFFIX = ".emulated.traced"
_KIND, _VERSION = "traced", 1


@dataclasses.dataclass(frozen=True)
class TracedProgram:
    """What a function was traced and lowered to.

    Attributes:
        program: hash of its StableHLO module, as `CacheKey.program`.
        results: dtype and shape of each result.
        tree: the structure of its results, as JAX serializes it.
    """

    program: str
    results: tuple[tuple[str, tuple[int, ...]], ...]
    tree: bytes

    @classmethod
    def of(cls, program: str, results: Sequence[Any], tree: Any) -> TracedProgram | None:
        """Returns what a function was traced to; None if this cannot be written down.

        Args:
            program: hash of its module; "" if it was not kept.
            results: types of its results.
            tree: their structure.
        """
        if not program or not all(isinstance(each.dtype, np.dtype) and not each.weak_type for each in results):
            return None
        types = tuple((str(each.dtype), tuple(each.shape)) for each in results)
        return cls(program, types, tree.serialize_using_proto())

    @property
    def structure(self) -> Any:
        """Structure of its results."""
        return jax.tree_util.PyTreeDef.deserialize_using_proto(jax.tree_util.default_registry, self.tree)

    def stand_in(self, jit: Any, leaves: Sequence[Any]) -> Any:
        """Returns a `jax.stages.Lowered` with these arguments and results, for JAX to call the executable with.

        Args:
            jit: `jax.jit` with the options of the function; it must keep unused arguments.
            leaves: the function's arguments.
        """

        def zeros(*_: Any) -> list[Any]:
            return [jnp.zeros(shape, dtype) for dtype, shape in self.results]

        return jit(zeros).lower(*leaves)


def trace_key(source: str, arguments: Sequence[Any], tree: Any, donated: Sequence[int]) -> bytes:
    """Returns the key of a function: a line of JSON with all that its module depends on.

    Args:
        source: what it is traced from: two functions of the same one are the same.
        arguments: its arguments, arrays.
        tree: their structure.
        donated: numbers of those that are donated.
    """
    types = map(jax.typeof, arguments)
    key = {
        "source": source,
        "arguments": [f"{each.dtype}{list(each.shape)}{' weak' if each.weak_type else ''}" for each in types],
        "structure": str(tree),
        "donated": list(donated),
        "package": _package(),
        "jax": jax.__version__,
        "backend": jax.default_backend(),
        "settings": _settings(),
        "native": f"{library.described()} {library.needed().made}" if library.usable() else "",
        "threads": environment.thread_count(),
        "xla_flags": environment.xla_flags(),
    }
    return json.dumps(key, sort_keys=True).encode() + b"\n"


def read_traced(folder: Path, key: bytes) -> TracedProgram:
    """Reads what a function was traced to in another process.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if there is none.
        UntrustedFile: if others than this user can write to it.
        DamagedFile, ForeignFile: if it is not what was written for this key.
    """
    payload = read_sealed(_path(folder, key), _KIND, _VERSION, private=True)
    if not payload.startswith(key):
        raise DamagedFile(f"'{_path(folder, key)}' is of another program.")
    found = json.loads(payload[len(key) :])
    results = tuple((dtype, tuple(shape)) for dtype, shape in found["results"])
    return TracedProgram(found["program"], results, bytes.fromhex(found["tree"]))


def write_traced(folder: Path, key: bytes, traced: TracedProgram) -> None:
    """Writes what a function was traced to.

    Raises:
        OSError: if it cannot be written.
    """
    text = json.dumps({**dataclasses.asdict(traced), "tree": traced.tree.hex()})
    write_sealed(_path(folder, key), _KIND, key + text.encode(), _VERSION, private=True)


def _path(folder: Path, key: bytes) -> Path:
    return folder / (hashlib.sha256(key).hexdigest() + SUFFIX)


def _settings() -> str:
    """Returns a hash of JAX's settings, those of this thread included."""
    values = [sorted(jax.config.values.items()), *jax_compilation.trace_settings()]
    return hashlib.sha256(repr(values).encode()).hexdigest()


@functools.cache
def _package() -> str:
    """Returns a hash of this package's sources that programs are traced and lowered by."""
    found, root = hashlib.sha256(), Path(__file__).parents[2]
    for folder in ("device", "lowering"):
        for path in sorted((root / folder).rglob("*.py")):
            found.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return found.hexdigest()
