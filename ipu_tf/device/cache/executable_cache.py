"""Persistent compilation cache: stores compiled programs on disk, and loads them in later processes.

    function ──trace──► StableHLO ──hash──► <folder>/<hash>.emulated.poplar_exec ──► loaded
                            └─ no such entry, or a bad one ──► compiled, and the entry written anew

An entry is keyed by the program as StableHLO (which has the shapes in it), what is donated, the versions of JAX and
jaxlib, the backend with its devices, XLA's compile options and flags, and the features of this machine's processor; see
`cache_entry`. Entries hold machine code: whoever can write to the folder can run code in the processes that read it, as
with any executable. So a folder is refused that others can write to, and so is an entry.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.cache import cache_folder
from ipu_tf.device.cache.cached_compilation import compile_cached
from ipu_tf.device.cache.compiler_options import compiler_options, numeric_options
from ipu_tf.device.device_log import log_operations
from ipu_tf.device.paused_collection import paused_collection

_folder: ProcessValue[Path | None] = register_state("executable cache: its folder", ProcessValue(None))
RunCompilation = Callable[[Any, Callable[[], Any], dict[Any, Any]], Any]


def use(directory: str) -> None:
    """Sets the cache folder; an empty name turns the cache off.

    Raises:
        CacheFolderError: if it is no folder, or cannot be made.
        UntrustedFile: if others than this user can write to it.
    """
    wanted = Path(directory) if directory else None
    if wanted == _folder.value:
        return
    if wanted is not None:
        cache_folder.prepare(wanted)
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
    """

    def __init__(
        self,
        function: Callable[..., Any],
        donate: tuple[int, ...],
        directory: Path,
        devices: tuple[Any, ...] = (),
        compile_as: RunCompilation = lambda key, compile_it, left: compile_it(),
        within: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
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
        structure: list[Any] = []

        def run(*leaves: Any) -> list[Any]:
            results, tree_of_results = jax.tree.flatten(self._function(*jax.tree.unflatten(tree, leaves)))
            structure.append(tree_of_results)
            return results

        numbers = iter(range(len(jax.tree.leaves(arguments))))
        donated = [[next(numbers) for _ in jax.tree.leaves(argument)] for argument in arguments]
        given_up = tuple(number for index in self._donate for number in donated[index])
        # Without the options for memory: XLA cannot serialize intermediate results that are in several blocks.
        compiled_so = jax.jit(run, donate_argnums=given_up, compiler_options=numeric_options())
        log_operations(compiled_so, tuple(jax.tree.leaves(arguments)))
        lowered = compiled_so.lower(*jax.tree.leaves(arguments))
        compiled = self._compile_as(key, lambda: compile_cached(lowered, self._directory, self._devices), self._left)
        self._compiled |= not compiled.loaded
        return compiled.function, structure[-1]


def _argument_key(leaf: Any) -> Any:
    """Returns the part of the key for one argument: its dtype, shape and sharding."""
    return jax.typeof(leaf), getattr(leaf, "sharding", None) if jax.device_count() > 1 else None
