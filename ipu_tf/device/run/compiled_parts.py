"""Compiles the parts of a program, each once, and caches compiled functions and staging buffers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from ipu_tf.device.cache import executable_cache
from ipu_tf.device.cache.compiler_options import compiler_options
from ipu_tf.device.cache.user_cache import KeptCompilation, user_folder
from ipu_tf.device.elementwise.evaluate import with_native_elementwise
from ipu_tf.device.instances.across import FunctionOfInstances
from ipu_tf.device.memory import hidden_state
from ipu_tf.device.program.program import Hidden, Program, StraightLinePart
from ipu_tf.device.program.replicas import Replicas, replicas
from ipu_tf.device.run.interruptible_function import CompilationState, InterruptibleFunction
from ipu_tf.device.run.run_record import compiling


class CompiledParts:
    """Compiled functions of a program, and reused staging buffers of its loops.

    Attributes:
        program: the program.
        replicas: the replicas that it runs on.
        compilation: Ctrl-C during the present execution, and whether it may be left: the compiled functions ask it.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.replicas: Replicas = replicas(program.replicas, together=program.uses_callbacks)
        self.compilation = CompilationState()
        self._kept: dict[Any, Any] = {}
        self._cached: list[executable_cache.CachedFunction | KeptCompilation] = []

    def straight_line_function(self, index: int, part: StraightLinePart) -> Any:
        """Returns the compiled function of a straight-line part: `(taken, kept, hidden, elements)`."""
        axes = hidden_state.replica_axes(self.program.hidden)
        over = self.replicas.over
        return self.compiled(
            index, lambda: over(_straight_line_function(part), (0, 0, axes, 0), (0, axes, 0)), donate=(0,)
        )

    def compiled(self, key: Any, make: Callable[[], Any], donate: tuple[int, ...]) -> Any:
        """Returns the compiled function cached under `key`, built on first use."""
        return self.kept(key, lambda: self._function(make(), donate))

    def _function(self, function: Callable[..., Any], donate: tuple[int, ...]) -> Any:
        function = with_native_elementwise(function)
        if self.replicas.instances > 1:  # XLA writes down which devices run it: no other process has the same
            jitted = jax.jit(function, donate_argnums=donate, compiler_options=compiler_options())
            interruptible = InterruptibleFunction(jitted, self.compilation)
            return FunctionOfInstances(interruptible, self.program.readable_name)
        directory, calls_the_host = executable_cache.directory(), self.program.uses_callbacks
        if directory is not None and not calls_the_host:  # callbacks are addresses in this process
            compiled, devices = self.compilation.compiled, self.replicas.devices
            cached = executable_cache.CachedFunction(function, donate, directory, devices, compiled, compiling)
            self._cached.append(cached)
            return cached
        jitted = jax.jit(function, donate_argnums=donate, compiler_options=compiler_options())
        folder = user_folder() if directory is None and not calls_the_host else None
        if folder is None:
            return InterruptibleFunction(jitted, self.compilation)
        kept = KeptCompilation(folder, self.replicas.devices)
        self._cached.append(kept)
        return InterruptibleFunction(jitted, self.compilation, kept)

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """Returns an object that executions reuse, such as staging buffers, cached under a key."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def loaded_from_cache(self) -> bool:
        """Returns whether all compilations since the last call were loaded from the executable cache."""
        compiled = [function.take_compiled() for function in self._cached]
        return bool(compiled) and not any(compiled)


def _straight_line_function(part: StraightLinePart) -> Any:
    def run(taken: dict[int, Any], kept: dict[int, Any], hidden: Hidden, elements: Any) -> Any:
        values = {**taken, **kept}
        return part.run(tuple(values[slot] for slot in part.live_in), hidden, elements)

    return run
