"""Compiled code kept on disk: what one process compiled, the next ones load.

    function ──trace──► StableHLO ──key──► <directory>/<key>.emulated.poplar_exec ──► loaded
                            └─ no such entry, or a damaged one ──► compiled, and the entry written anew

An entry is keyed by the program as StableHLO (which has the shapes in it), what is donated, the versions of JAX and
jaxlib, the backend with its devices, XLA's flags and the features of this machine's processor. It is read only if its
checksum holds. Entries hold machine code: whoever can write to the directory can run code in the processes that read
it, as with any executable.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import logging
import pickle
import platform
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from jax.experimental import serialize_executable

from ipu_tf.device import connection, environment
from ipu_tf.device.host_memory import compiler_options
from ipu_tf.device.sealed_file import TEMPORARY, DamagedFile, ForeignFile, read_sealed, write_sealed

SUFFIX = ".emulated.poplar_exec"
"""How the names of entries end: as programs look for them, and saying what they are."""
_KIND = "compiled"
_ABANDONED_SECONDS = 3600
_NOT_KEPT = re.compile(r"@xla_\w*python\w*callback|__onednn\$")
"""Calls of programs that cannot be kept: the first hold addresses of this process, the second XLA cannot write."""
_log = logging.getLogger("ipu_tf")
_now: Path | None = None


def use(directory: str) -> None:
    """Says where compiled code is kept from now on; an empty name: nowhere."""
    global _now
    wanted = Path(directory) if directory else None
    if wanted == _now:
        return
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        _sweep(wanted)
    _now = wanted


def directory() -> Path | None:
    """Where compiled code is kept; None for nowhere."""
    return _now


def jitted(function: Callable[..., Any]) -> Any:
    """`jax.jit(function)`, whose compiled code comes from the cache if there is one."""
    return (
        CachedFunction(function, (), _now)
        if _now is not None
        else jax.jit(function, compiler_options=compiler_options())
    )


def _sweep(directory: Path) -> None:
    """Removes what writers left behind that were killed long ago."""
    for path in directory.glob(f"*{TEMPORARY}"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
        except FileNotFoundError:
            continue  # another process swept it first


class CachedFunction:
    """A function compiled for each kind of arguments it meets, or loaded from the cache: `jax.jit` with a memory.

    Args:
        function: traceable by JAX, of positional arguments.
        donate: which arguments give up their buffers.
        directory: where compiled code is kept.
        devices: the JAX devices it runs on; by default the first.
    """

    def __init__(
        self, function: Callable[..., Any], donate: tuple[int, ...], directory: Path, devices: tuple[Any, ...] = ()
    ) -> None:
        self._directory = directory
        self._devices = devices or tuple(jax.local_devices()[:1])
        self._function = function
        self._donate = donate
        self._lock = threading.Lock()
        self._ready: dict[Any, tuple[Any, Any]] = {}
        self._compiled = False

    def __call__(self, *arguments: Any) -> Any:
        """The function's results."""
        compiled, structure = self._ready_for(arguments)
        return jax.tree.unflatten(structure, compiled(*jax.tree.leaves(arguments)))

    def prepare(self, *arguments: Any) -> Any:
        """Compiles or loads it for such arguments without running it; gives shapes and dtypes of the results."""
        compiled, structure = self._ready_for(arguments)
        return jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(o.shape, o.dtype) for o in compiled.out_info])

    def take_compiled(self) -> bool:
        """Whether anything had to be compiled since this was last asked."""
        compiled, self._compiled = self._compiled, False
        return compiled

    def _ready_for(self, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        leaves, tree = jax.tree.flatten(arguments)
        key = (tree, tuple(map(_kind_of, leaves)))
        ready = self._ready.get(key)
        if ready is None:
            with self._lock:
                if key not in self._ready:
                    self._ready[key] = self._made_ready(arguments, tree)
                ready = self._ready[key]
        return ready

    def _made_ready(self, arguments: tuple[Any, ...], tree: Any) -> tuple[Any, Any]:
        """The executable, which takes and gives leaves, so that names of queues are no part of its key."""
        structure: list[Any] = []

        def run(*leaves: Any) -> list[Any]:
            results, tree_of_results = jax.tree.flatten(self._function(*jax.tree.unflatten(tree, leaves)))
            structure.append(tree_of_results)
            return results

        numbers = iter(range(len(jax.tree.leaves(arguments))))
        donated = [[next(numbers) for _ in jax.tree.leaves(argument)] for argument in arguments]
        given_up = tuple(number for index in self._donate for number in donated[index])
        # Without our compiler options: XLA cannot serialize a program whose intermediate results are in several blocks.
        lowered = jax.jit(run, donate_argnums=given_up).lower(*jax.tree.leaves(arguments))
        compiled, loaded = compile_cached(lowered, self._directory, self._devices)
        self._compiled |= not loaded
        return compiled, structure[-1]


def compile_cached(lowered: Any, directory: Path, devices: tuple[Any, ...]) -> tuple[Any, bool]:
    """What `lowered.compile()` gives, from the cache if it is there; and whether it was.

    Args:
        lowered: a `jax.stages.Lowered` of a function of positional arrays that gives a list of arrays.
        directory: the cache.
        devices: the JAX devices it runs on.
    """
    text = lowered.as_text()
    if _NOT_KEPT.search(text):
        return lowered.compile(), False
    path = directory / f"{_key(text, lowered, devices)}{SUFFIX}"
    found = _load(path, devices)
    if found is not None:
        return found, True
    compiled = lowered.compile()
    _store(path, compiled)
    return compiled, False


def _key(text: str, lowered: Any, devices: tuple[Any, ...]) -> str:
    donated = [argument.donated for argument in jax.tree.leaves(lowered.args_info)]
    parts = (text, repr(donated), str(lowered.in_tree), *_surroundings(devices))
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(part.encode())
    return digest.hexdigest()


def _surroundings(devices: tuple[Any, ...]) -> tuple[str, ...]:
    """What compiled code depends on besides the program."""
    client = devices[0].client
    runs_on = f"{client.platform} {client.platform_version} {[(d.id, d.device_kind) for d in devices]}"
    versions = (jax.__version__, importlib.metadata.version("jaxlib"))
    return (*versions, runs_on, environment.xla_flags(), _processor())


@functools.cache
def _processor() -> str:
    """The machine's kind of processor with its instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return f"{platform.machine()} {platform.processor()} {platform.node()}"
    told = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return f"{platform.machine()} {sorted(set(told))}"


def _load(path: Path, devices: tuple[Any, ...]) -> Any:
    """The executable of an entry; None if there is none that can be used."""
    try:
        payload, in_tree, out_tree = pickle.loads(read_sealed(path, _KIND))
    except FileNotFoundError:
        return None
    except (DamagedFile, ForeignFile) as error:
        _log.warning("ipu_tf: the executable cache has a bad entry, which is compiled and written again. %s", error)
        return None
    try:
        return serialize_executable.deserialize_and_load(payload, in_tree, out_tree, execution_devices=devices)
    except Exception as error:  # noqa: BLE001 - whatever the backend has against it, compiling is right
        _log.warning("ipu_tf: '%s' cannot be loaded here, so the program is compiled: %s", path, error)
        return None


def _store(path: Path, compiled: Any) -> None:
    try:
        write_sealed(path, _KIND, pickle.dumps(serialize_executable.serialize(compiled)))
        kind = "compiled" if connection.attached() else "pre-compiled"
        _log.info("ipu_tf: the %s program has been saved to %s", kind, path)
    except OSError as error:
        _log.warning("ipu_tf: the executable cache cannot be written to, so the next process compiles again: %s", error)
    except (NotImplementedError, ValueError) as error:
        _log.warning("ipu_tf: JAX cannot keep this program, so the next process compiles again: %s", error)


def _kind_of(leaf: Any) -> Any:
    """What compiled code for one argument depends on."""
    return jax.typeof(leaf), getattr(leaf, "sharding", None) if jax.device_count() > 1 else None
