"""Compilations that Ctrl-C interrupts: XLA compiles in a thread, for which the main thread waits."""

from __future__ import annotations

import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax

from ipu_tf.device.cache import jax_compilation
from ipu_tf.device.device_log import log_operations
from ipu_tf.device.paused_collection import paused_collection
from ipu_tf.device.run.interrupts import Interrupts, interrupt_at_once
from ipu_tf.device.run.run_record import compiling, note_memory

_POLL_SECONDS = 0.05


class CompilationState:
    """Says whether an execution may be left while a function is compiled.

    Attributes:
        interrupts: Ctrl-C during the present execution.
        nothing_donated: whether no buffer of this execution has been donated: variables are as they were before it.
    """

    def __init__(self) -> None:
        self.interrupts = Interrupts()
        self.nothing_donated = True

    def interrupted(self) -> bool:
        """Returns whether Ctrl-C was pressed during the present execution."""
        return self.interrupts.requested

    def compiled(self, key: Any, compile_it: Callable[[], Any], started: dict[Any, Future[Any]]) -> Any:
        """Runs a compilation, in a thread of its own where Ctrl-C may leave the wait for it.

        Args:
            key: of the compilation.
            compile_it: compiles; its result is used.
            started: compilations that were left: the next call with such a key takes what they compiled.

        Raises:
            KeyboardInterrupt: if Ctrl-C was pressed.
        """
        if self.nothing_donated and self.interrupts.active:
            if key not in started:
                started[key] = _started(compile_it)
            future = started[key]
            try:
                _wait(future, self.interrupts)
            finally:
                if future.done():
                    del started[key]
            return _noted(future.result() or compile_it())
        return _noted(compile_it())


class InterruptibleFunction:
    """A jitted function, compiled in a thread of its own where its first call is in the main thread.

    Ctrl-C leaves the wait for it with `KeyboardInterrupt`, as long as no buffer was donated. XLA cannot be stopped: the
    thread ends when it has compiled, and what it compiled is used by the next call.

    Args:
        function: from `jax.jit`; always called with arguments of the same shapes.
        compilation: of the executions that call it.
        compile_lowered: compiles a `jax.stages.Lowered` of it in place of XLA alone, for JAX to find, such as
            `KeptCompilation`, and returns a `jax.stages.Compiled`; None if none does.
    """

    def __init__(
        self, function: Any, compilation: CompilationState, compile_lowered: Callable[[Any], Any] | None = None
    ) -> None:
        self._function = function
        self._compilation = compilation
        self._compile_lowered = compile_lowered
        self._compiling: Future[Any] | None = None
        self._compiled = False

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function."""
        if not self._compiled:
            with compiling(), paused_collection():
                log_operations(self._function, arguments)
                self._compile(arguments)
        return self._function(*arguments)

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        """Has JAX's cache of compiled functions hold it; JAX finds it there by what it was lowered from."""
        if self._compilation.nothing_donated and self._compilation.interrupts.active:
            if self._compiling is None:
                with interrupt_at_once():
                    lowered = self._function.lower(*arguments)
                self._compiling = _started(functools.partial(self._compile_it, lowered))
            try:
                _wait(self._compiling, self._compilation.interrupts)
            except BaseException:
                if self._compiling.done() and self._compiling.exception():
                    self._compiling = None  # the next call tries again
                raise
            if not self._compiling.result():
                self._compile_it(self._function.lower(*arguments))
        else:
            self._compile_it(self._function.lower(*arguments))
        self._compiling, self._compiled = None, True

    def _compile_it(self, lowered: Any) -> bool:
        note_memory(lowered.compile() if self._compile_lowered is None else self._compile_lowered(lowered))
        return True


def _noted(cached: Any) -> Any:
    """Returns a `CachedCompilation`, after its bytes were noted."""
    note_memory(cached.function)
    return cached


def _started(compile_it: Callable[[], Any]) -> Future[Any]:
    """Runs a compilation in a thread with this thread's settings of JAX, by which its cache is looked up."""
    future: Future[Any] = Future()
    context = jax_compilation.trace_context()

    def work() -> None:
        try:
            with jax.enable_x64(True):
                # A user's own setting, which holds in the main thread alone: compiled where it holds, in the call.
                future.set_result(compile_it() if jax_compilation.trace_context() == context else None)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)

    # With this thread's context variables: what JAX reports of the compilation is noted for this execution.
    threading.Thread(target=contextvars.copy_context().run, args=(work,), name="ipu_compile").start()
    return future


def _wait(future: Future[Any], interrupts: Interrupts) -> None:
    finished = threading.Event()
    future.add_done_callback(lambda _: finished.set())
    while not finished.wait(_POLL_SECONDS):
        interrupts.check()
    future.result()
