"""The program that the device executed last in this process, for reports. Programs are not kept alive for it."""

from __future__ import annotations

import weakref

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.program.program import Program

_last: ProcessValue[weakref.ref[Program] | None] = register_state("program that was executed last", ProcessValue(None))


def remember(program: Program) -> None:
    """Notes that a program is executed."""
    _last.value = weakref.ref(program)


def last_program() -> Program | None:
    """Returns the program that was executed last; None if there was none, or nothing refers to it any more."""
    return None if _last.value is None else _last.value()
