"""`jax.jit` whose compilation Ctrl-C interrupts: XLA compiles in a thread, for which the main thread waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax

from ipu_tf.device.cache import jax_compilation
from ipu_tf.device.run.interrupts import Interrupts, undeferred

_POLL_SECONDS = 0.05


class CompilationGate:
    """Says whether an execution may be left while a function is compiled.

    Attributes:
        interrupts: Ctrl-C during the present execution.
        untouched: whether no buffer of this execution has been donated: variables are as they were before it.
    """

    def __init__(self) -> None:
        self.interrupts = Interrupts()
        self.untouched = True


class InterruptibleFunction:
    """A jitted function, compiled in a thread of its own where its first call is in the main thread.

    Ctrl-C leaves the wait for it with `KeyboardInterrupt`, as long as `gate.untouched`. XLA cannot be stopped: the
    thread ends when it has compiled, and what it compiled is used by the next call.

    Args:
        function: from `jax.jit`; always called with arguments of the same shapes.
        gate: of the executions that call it.
    """

    def __init__(self, function: Any, gate: CompilationGate) -> None:
        self._function = function
        self._gate = gate
        self._compiling: Future[Any] | None = None
        self._compiled = False

    def __call__(self, *arguments: Any) -> Any:
        """Calls the function."""
        if not self._compiled:
            self._compile(arguments)
        return self._function(*arguments)

    def _compile(self, arguments: tuple[Any, ...]) -> None:
        """Has JAX's cache of compiled functions hold it; JAX finds it there by what it was lowered from."""
        if self._gate.untouched and self._gate.interrupts.active:
            if self._compiling is None:
                with undeferred():
                    lowered = self._function.lower(*arguments)
                self._compiling = _started(lowered.compile)
            _wait(self._compiling, self._gate.interrupts)
        self._compiling, self._compiled = None, True


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

    threading.Thread(target=work, name="ipu_compile").start()
    return future


def _wait(future: Future[Any], interrupts: Interrupts) -> None:
    finished = threading.Event()
    future.add_done_callback(lambda _: finished.set())
    while not finished.wait(_POLL_SECONDS):
        interrupts.check()
    future.result()
