"""Says what was compiled, how long it took, and whether it came from the executable cache; to the log, and to reports.

Each compilation is a line of the logger `ipu_tf.compilation`, which is off unless `POPLAR_LOG_LEVEL` asks for INFO.
Where the environment asks for nothing, those over a second are said on a terminal.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.device_log import LOG as DEVICE_LOG
from ipu_tf.device.environment import log_destination, log_level
from ipu_tf.device.program.program import LoopPart, Program, Types, bytes_of
from ipu_tf.device.run.run_record import RunRecord, Span

LOG = logging.getLogger("ipu_tf.compilation")
"""Its level is set where `POPLAR_LOG_LEVEL` is read; WARNING otherwise."""
LOG.setLevel(logging.WARNING)
_report: ProcessValue[Callable[[Program, RunRecord], None] | None] = register_state(
    "what reports on compiled programs", ProcessValue(None)
)
_follow: ProcessValue[Callable[[Program, RunRecord], None] | None] = register_state(
    "what follows executions", ProcessValue(None)
)
_failure: ProcessValue[Callable[[Program, RunRecord, str], None] | None] = register_state(
    "what reports on failed compilations", ProcessValue(None)
)
_LONG_SECONDS = 1.0
_NAMES = {"trace": "trace", "lower": "lowering", "compile": "XLA"}


class ProgramCheck(Protocol):
    """What looks at programs before they run first, and after they were compiled."""

    def before(self, program: Program, record: RunRecord) -> None:
        """Checks a program that was not executed yet; may raise."""

    def compiled(self, program: Program, record: RunRecord) -> None:
        """Looks at a program after the execution in which it was compiled."""


_check: ProcessValue[ProgramCheck | None] = register_state("check of programs", ProcessValue(None))


def check_programs_by(check: ProgramCheck | None) -> None:
    """Sets what checks programs from now on; None for nothing."""
    _check.value = check


def check_new(program: Program, record: RunRecord) -> None:
    """Checks a program that was not executed yet; raises what the check does."""
    if _check.value is not None:
        _check.value.before(program, record)


def log_compilation(program: Program, record: RunRecord) -> None:
    """Logs what was compiled for a program since the last call."""
    spans, because = record.take_compiled(), record.because
    seconds = sum(span.seconds for span in spans)
    record.because = ""
    log_parts(program)
    if LOG.isEnabledFor(logging.INFO):
        LOG.info("%s", compilation_text(program, spans, record.loaded, because))
    elif seconds > _LONG_SECONDS and _on_terminal():
        print(compilation_text(program, spans, record.loaded, because), file=sys.stderr)


def _on_terminal() -> bool:
    """Returns whether a terminal shows long compilations: the environment asks for no level, and for no other place."""
    if log_level() or log_destination() not in ("", "stderr"):
        return False
    return sys.stderr is not None and sys.stderr.isatty()


def compilation_text(program: Program, spans: tuple[Span, ...], loaded: bool, because: str = "") -> str:
    """Returns the line on a compilation, and on what it was done again for."""
    seconds = {name: sum(span.seconds for span in spans if span.what == what) for what, name in _NAMES.items()}
    verb = "loaded from the executable cache" if loaded else "compiled"
    each = ", ".join(f"{stage} {of:.1f} s" for stage, of in seconds.items())
    size = bytes_of(program.parameters) / 1024
    name = program.readable_name
    again = f"; again, as {because}" if because else ""
    return f"ipu_tf: {verb} {name} in {sum(seconds.values()):.1f} s ({each}); {size:.1f} KiB of parameters{again}"


def report_to(
    listener: Callable[[Program, RunRecord], None] | None,
    after_each: Callable[[Program, RunRecord], None] | None = None,
    after_failure: Callable[[Program, RunRecord, str], None] | None = None,
) -> None:
    """Sets what is called with programs that were executed.

    Args:
        listener: called after the execution in which a program was compiled; None for nothing.
        after_each: called after each execution, and after `listener`; None for nothing.
        after_failure: called with programs whose compilation failed, and the error; None for nothing.
    """
    _report.value = listener
    _follow.value = after_each
    _failure.value = after_failure


def report_failed(program: Program, record: RunRecord, error: BaseException) -> None:
    """Calls the listener of failures, if the error ended a compilation of the program."""
    if _failure.value is not None and record.failed_from is not None and isinstance(error, Exception):
        first = str(error).partition("\n")[0]
        _failure.value(program, record, f"{type(error).__name__}: {first}")


def report_executed(program: Program, record: RunRecord) -> None:
    """Calls the listeners after an execution: that of compilations if something was compiled since the last call."""
    if record.compiled_anew:
        record.compiled_anew = False
        log_compilation(program, record)
        if _check.value is not None:
            _check.value.compiled(program, record)
        if _report.value is not None:
            _report.value(program, record)
    if _follow.value is not None:
        _follow.value(program, record)


def log_parts(program: Program) -> None:
    """Logs the parts of a program that was compiled, with the types of their feeds."""
    if not DEVICE_LOG.isEnabledFor(logging.DEBUG):
        return
    for index, part in enumerate(program.parts):
        kind = f"loop that carries {len(part.carry_in)} values" if isinstance(part, LoopPart) else "straight line"
        feeds = [*_queues("infeed", part.infeeds), *_queues("outfeed", part.outfeeds)]
        DEVICE_LOG.debug("ipu_tf: %s, part %d: %s", program.readable_name, index, "; ".join([kind, *feeds]))


def log_chunk(program: Program, index: int, part: LoopPart, iterations: int, seconds: float) -> None:
    """Logs a chunk that a loop ran, with the bytes that its feeds moved."""
    if not DEVICE_LOG.isEnabledFor(logging.DEBUG):
        return
    feeds = [("infeed", part.infeeds), ("outfeed", part.outfeeds)]
    moved = [
        f"; {kind} {name}: {iterations * bytes_of(types)} bytes" for kind, of in feeds for name, types in of.items()
    ]
    what = program.readable_name, index, iterations, 1e3 * seconds, "".join(moved)
    DEVICE_LOG.debug("ipu_tf: %s, part %d: chunk of %d iterations in %.2f ms%s", *what)


def _queues(kind: str, queues: Mapping[str, Types]) -> Iterator[str]:
    for name, types in queues.items():
        yield f"{kind} {name} of {', '.join(f'{each.dtype.name}{list(each.shape)}' for each in types)}"
