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
from ipu_tf.device.program.program import Hidden, LoopPart, Part, Program, StraightLinePart
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
        """Returns the compiled function cached under `key`, built on first use.

        Args:
            key: which function of the program; it has all that the function depends on besides the program.
            make: builds the function, traceable by JAX.
            donate: which of its arguments are donated.
        """
        return self.kept(key, lambda: self._function(make(), donate, key))

    def _source(self, key: Any) -> str:
        """Returns what a function is traced from; "" where that is not known."""
        program, replicas = self.program, self.replicas
        source = "" if program.uses_callbacks or replicas.devices or replicas.instances > 1 else program.source()
        if not source:
            return ""
        hidden, parts = list(program.hidden.items()), list(map(_data, program.parts))
        return repr((source, _ordered(key), parts, program.parameters, hidden, replicas.count))

    def _function(self, function: Callable[..., Any], donate: tuple[int, ...], key: Any) -> Any:
        function = with_native_elementwise(function)
        if self.replicas.instances > 1:  # XLA writes down which devices run it: no other process has the same
            jitted = jax.jit(function, donate_argnums=donate, compiler_options=compiler_options())
            interruptible = InterruptibleFunction(jitted, self.compilation)
            return FunctionOfInstances(interruptible, self.program.readable_name)
        directory, calls_the_host = executable_cache.directory(), self.program.uses_callbacks
        if directory is not None and not calls_the_host:  # callbacks are addresses in this process
            compiled, devices = self.compilation.compiled, self.replicas.devices
            given = function, donate, directory, devices, compiled, compiling, self._source(key)
            cached = executable_cache.CachedFunction(*given)
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


def _ordered(key: Any) -> Any:
    """Returns a key with its sets as lists: the order of a set is another in each process."""
    if isinstance(key, tuple):
        return tuple(map(_ordered, key))
    return sorted(key) if isinstance(key, frozenset) else key


def _data(part: Part) -> list[Any]:
    """Returns what there is of a part besides its functions."""
    slots = part.live_in, part.live_out
    feeds = list(part.infeeds.items()), list(part.outfeeds.items())
    if not isinstance(part, LoopPart):
        return [slots, feeds]
    carried = part.carry_in, part.constants, part.carry_out
    return [slots, feeds, carried, sorted(part.sometimes), part.most_steps, part.lengths_vary, part.feedless]


def _straight_line_function(part: StraightLinePart) -> Any:
    def run(taken: dict[int, Any], kept: dict[int, Any], hidden: Hidden, elements: Any) -> Any:
        values = {**taken, **kept}
        return part.run(tuple(values[slot] for slot in part.live_in), hidden, elements)

    return run
