"""Persistent compilation cache: stores compiled programs on disk, and loads them in later processes.

    function ──trace──► StableHLO ──hash──► <folder>/<hash>.emulated.poplar_exec ──► loaded
                            └─ no such entry, or a bad one ──► compiled, and the entry written anew

An entry is keyed by the program as StableHLO (which has the shapes in it), what is donated, the versions of JAX and
jaxlib, the backend with its devices, XLA's compile options and flags, and the features of this machine's processor; see
`cache_entry`. Where a front end says what a function is traced from, that is written down beside the entry, and a later
process need not trace it: `traced_program`.

Entries hold machine code: whoever can write to the folder can run code in the processes that read it, as with any
executable. So a folder is refused that others can write to, and so is an entry.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.cache import cache_folder
from ipu_tf.device.cache.cached_compilation import CachedCompilation, compile_cached, load_cached
from ipu_tf.device.cache.compiler_options import compiler_options, numeric_options
from ipu_tf.device.cache.traced_program import TracedProgram, read_traced, trace_key, write_traced
from ipu_tf.device.device_log import log_operations, logs_operations
from ipu_tf.device.memory.malloc_options import keep_large_blocks
from ipu_tf.device.op_scopes import names_kept
from ipu_tf.device.paused_collection import paused_collection

_folder: ProcessValue[Path | None] = register_state("executable cache: its folder", ProcessValue(None))
RunCompilation = Callable[[Any, Callable[[], Any], dict[Any, Any]], Any]


def use(directory: str) -> None:
    """Sets the cache folder; an empty name turns the cache off. With one, threads share a heap: see `malloc_options`.

    Raises:
        CacheFolderError: if it is no folder, or cannot be made.
        UntrustedFile: if others than this user can write to it.
    """
    wanted = Path(directory) if directory else None
    if wanted == _folder.value:
        return
    if wanted is not None:
        cache_folder.prepare(wanted)
        keep_large_blocks()
    _folder.value = wanted


def directory() -> Path | None:
    """Returns the cache folder; None if the cache is off."""
    return _folder.value


def jitted(function: Callable[..., Any]) -> Any:
    """Returns `jax.jit(function)`, compiled through the executable cache if it is on."""
    folder = _folder.value
    return (
        CachedFunction(function, (), folder)
        if folder is not None
        else jax.jit(function, compiler_options=compiler_options())
    )


class CachedFunction:
    """Function compiled for each signature of arguments or loaded from the cache: `jax.jit` with a disk cache.

    Args:
        function: traceable by JAX, of positional arguments.
        donate: which arguments are donated.
        directory: where compiled code is kept.
        devices: the JAX devices it runs on; by default the first.
        compile_as: runs a compilation, by a key and a dictionary for those that were left; by default it is called.
        within: gives a context in which the function is traced and compiled; by default none.
        source: what the function is traced from: one of the same source gives the same program for the same arguments.
            "" where that is not known, and where it runs on several devices.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        donate: tuple[int, ...],
        directory: Path,
        devices: tuple[Any, ...] = (),
        compile_as: RunCompilation = lambda key, compile_it, left: compile_it(),
        within: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        source: str = "",
    ) -> None:
        self._directory = directory
        self._devices = devices or tuple(jax.local_devices()[:1])
        self._function = function
        self._donate = donate
        self._lock = threading.Lock()
        self._ready: dict[Any, tuple[Any, Any]] = {}
        self._compiled = False
        self._compile_as = compile_as
        self._within = within
        self._source = source
        self._left: dict[Any, Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Runs the function."""
        compiled, structure = self._function_for(arguments)
        return jax.tree.unflatten(structure, compiled(*jax.tree.leaves(arguments)))

    def prepare(self, *arguments: Any) -> Any:
        """Compiles or loads it for such arguments without running it; returns shapes and dtypes of the results."""
        compiled, structure = self._function_for(arguments)
        return jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(o.shape, o.dtype) for o in compiled.out_info])

    def take_compiled(self) -> bool:
        """Returns whether anything was compiled since the last call of this method."""
        compiled, self._compiled = self._compiled, False
        return compiled

    def _function_for(self, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        leaves, tree = jax.tree.flatten(arguments)
        key = (tree, tuple(map(_argument_key, leaves)))
        ready = self._ready.get(key)
        if ready is None:
            with self._lock, self._within(), paused_collection():
                if key not in self._ready:
                    self._ready[key] = self._made_ready(arguments, tree, key)
                ready = self._ready[key]
        return ready

    def _made_ready(self, arguments: tuple[Any, ...], tree: Any, key: Any) -> tuple[Any, Any]:
        """Compiles or loads the executable, over flat leaves, so that names of queues are no part of its key."""
        leaves, given_up = jax.tree.leaves(arguments), self._donated(arguments)
        jit = functools.partial(_jitted, donated=given_up)
        source = self._trace_key(leaves, tree, given_up)
        traced = self._traced_before(source, jit, leaves) if source else None
        if traced is not None:
            compilation, structure = traced
            compile_it: Callable[[], CachedCompilation] = lambda: compilation  # noqa: E731
        else:
            lowered, results, structure = self._lowered(jit, leaves, tree)
            compile_it = functools.partial(compile_cached, lowered, self._directory, self._devices)
        compiled = self._compile_as(key, compile_it, self._left)
        if traced is None and source and (compiled.loaded or compiled.stored):
            self._note(source, TracedProgram.of(compiled.program, results, structure))
        self._compiled |= not compiled.loaded
        return compiled.function, structure

    def _donated(self, arguments: tuple[Any, ...]) -> tuple[int, ...]:
        """Returns the numbers of the leaves that are donated."""
        numbers = iter(range(len(jax.tree.leaves(arguments))))
        donated = [[next(numbers) for _ in jax.tree.leaves(argument)] for argument in arguments]
        return tuple(number for index in self._donate for number in donated[index])

    def _lowered(self, jit: Any, leaves: Sequence[Any], tree: Any) -> tuple[Any, list[Any], Any]:
        """Traces and lowers the function; returns it with the types and the structure of its results."""
        noted: list[Any] = []

        def run(*values: Any) -> list[Any]:
            results, structure = jax.tree.flatten(self._function(*jax.tree.unflatten(tree, values)))
            noted[:] = list(map(jax.typeof, results)), structure
            return results

        jitted = jit(run)
        log_operations(jitted, tuple(leaves))
        return jitted.lower(*leaves), *noted

    def _trace_key(self, leaves: Sequence[Any], tree: Any, donated: tuple[int, ...]) -> bytes | None:
        """Returns the key of what the function is traced to; None if it is to be traced."""
        if not self._source or names_kept() or logs_operations() or jax.device_count() > 1:
            return None
        return trace_key(self._source, leaves, tree, donated)

    def _traced_before(self, key: bytes, jit: Any, leaves: Sequence[Any]) -> tuple[CachedCompilation, Any] | None:
        """Loads the executable of a function that another process traced, with the structure of its results."""
        try:
            traced = read_traced(self._directory, key)
            lowered = traced.stand_in(jit, leaves)
            return load_cached(traced.program, lowered, self._directory, self._devices), traced.structure
        except Exception:  # noqa: BLE001 - whatever is wrong with it: tracing is right, and tells of a bad entry
            return None

    def _note(self, key: bytes, traced: TracedProgram | None) -> None:
        with contextlib.suppress(OSError):  # a folder that can only be read
            if traced is not None:
                write_traced(self._directory, key, traced)


def _jitted(function: Callable[..., Any], donated: tuple[int, ...]) -> Any:
    """Returns `jax.jit` of a function of flat leaves, which takes all of them: a stand-in for it has the same."""
    # Without the options for memory: XLA cannot serialize intermediate results that are in several blocks.
    return jax.jit(function, donate_argnums=donated, keep_unused=True, compiler_options=numeric_options())


def _argument_key(leaf: Any) -> Any:
    """Returns the part of the key for one argument: its dtype, shape and sharding."""
    return jax.typeof(leaf), getattr(leaf, "sharding", None) if jax.device_count() > 1 else None
