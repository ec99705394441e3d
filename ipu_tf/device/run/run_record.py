"""`RunRecord`: times of a program's compilation and executions, measured on this machine, for reports.

JAX says how long it traced, lowered and compiled; what it did while a program was executed is the program's.
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

from ipu_tf._state.context import context_value
from ipu_tf.device.jax_events import listen
from ipu_tf.device.memory.memory_maps import make_room
from ipu_tf.device.timeline import recording

_STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
"""JAX's events, by name."""
_MOST_EXECUTIONS = 1000
_current: contextvars.ContextVar[RunRecord | None] = contextvars.ContextVar("record of the execution", default=None)


@dataclasses.dataclass(frozen=True)
class Span:
    """A measured time.

    Attributes:
        what: "trace", "lower" or "compile", as JAX calls them; "execution".
        start: when it began, in seconds after the record did.
        seconds: how long it took. An execution's includes what was compiled in it.
        steps: loop iterations of an execution.
    """

    what: str
    start: float
    seconds: float
    steps: int = 0


class RunRecord:
    """Times of one program.

    Attributes:
        executions: how many executions ended.
        begun_last: when the last one began, on the clock of `time.perf_counter`, whether it ended or not; None before
            the first. Where the device only compiles, it is an execution that does not end.
        seconds: how long they took together.
        loaded: whether what was compiled last came from the executable cache.
        compiled_anew: whether something was compiled since the last report.
        front_end_seconds: how long the front end took to trace and lower the step; 0 where it is not measured.
        ordinal: of the `/device:IPU:<ordinal>` that it runs on.
        xla_bytes: the most that XLA says a compiled function of it takes, of all replicas; 0 where it does not say.
        in_stages: whether a pipeline of it runs on several JAX devices: `xla_bytes` is without its stages' functions.
        capacity_checked: whether it was held against the memory of its IPUs.
        because: why it is compiled again, though a program of the same function was before; "" if none was.
        failed_from: when the compilation began that ended the present execution, in seconds after the record did; None
            if none did.
    """

    def __init__(self, ordinal: int = 0) -> None:
        listen(_heard)
        self.ordinal = ordinal
        self.xla_bytes = 0
        self.in_stages = False
        self.capacity_checked = False
        self._begun = time.perf_counter()
        self.executions = 0
        self.begun_last: float | None = None
        self.seconds = 0.0
        self._last: collections.deque[float] = collections.deque(maxlen=3 * _MOST_EXECUTIONS)
        self.loaded = False
        self.compiled_anew = False
        self.front_end_seconds = 0.0
        self.because = ""
        self.failed_from: float | None = None
        self._compiled: list[Span] = []
        self._taken = 0.0

    @property
    def compiled(self) -> tuple[Span, ...]:
        """What was traced, lowered and compiled; none is within another."""
        return tuple(self._compiled)

    def take_compiled(self) -> tuple[Span, ...]:
        """Returns what was traced, lowered and compiled since the last call of this method."""
        new = tuple(span for span in self._compiled if span.start + span.seconds > self._taken)
        self._taken = time.perf_counter() - self._begun
        return new

    @property
    def last(self) -> tuple[Span, ...]:
        """The last executions, at most 1,000, with their times."""
        numbers = iter(self._last)
        triples = zip(numbers, numbers, numbers, strict=True)
        return tuple(Span("execution", start, seconds, int(steps)) for start, seconds, steps in triples)

    def measuring(self) -> contextlib.AbstractContextManager[None]:
        """Context of an execution, in which what JAX traces and compiles is noted here."""
        self.failed_from = None
        self.begun_last = time.perf_counter()
        return context_value(_current, self)

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        start = time.perf_counter() - self._begun
        try:
            yield
        except Exception:
            self.failed_from = start
            raise

    def executed(self, start: float, steps: int) -> None:
        """Notes an execution that ends now.

        Args:
            start: when it began, on the clock of `time.perf_counter`.
            steps: loop iterations that it ran.
        """
        seconds = time.perf_counter() - start
        self.executions += 1
        self.seconds += seconds
        self._last.extend((start - self._begun, seconds, steps))  # as numbers: the garbage collector visits objects

    def add(self, what: str, seconds: float) -> None:
        """Notes what JAX did until now; what it did within is part of it."""
        trace = recording()
        if trace is not None:
            trace.add("XLA", what, trace.now() - 1e6 * seconds, trace.now())
        start = time.perf_counter() - self._begun - seconds
        self._compiled = [span for span in self._compiled if span.start < start]
        self._compiled.append(Span(what, start, seconds))


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Context in which a function of the executed program is traced, lowered and compiled, and nothing else is.

    An error in it ends the program's compilation. What an execution raises, and copies that JAX compiles on the way to
    the function, are outside of it.

    Raises:
        TooManyMappings: the process has no room for another compiled function.
    """
    record = _current.get()
    with contextlib.nullcontext() if record is None else record._compiling():
        make_room()
        yield


def note_memory(compiled: Any) -> None:
    """Notes the bytes of a `jax.stages.Compiled` for the program that is executed."""
    record = _current.get()
    found = None if record is None else compiled.memory_analysis()
    if record is not None and found is not None:
        needs = found.argument_size_in_bytes + found.output_size_in_bytes + found.temp_size_in_bytes
        record.xla_bytes = max(record.xla_bytes, needs - found.alias_size_in_bytes)


def _heard(event: str, duration_secs: float, **about: str | int) -> None:
    record = _current.get()
    if record is not None and event in _STAGES:
        record.add(_STAGES[event], duration_secs)
