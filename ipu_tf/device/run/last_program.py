"""The program that the device executed last in this process, for reports. Programs are not kept alive for it."""

from __future__ import annotations

import weakref

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.program.program import Program
from ipu_tf.device.run.run_record import RunRecord

_last: ProcessValue[tuple[weakref.ref[Program], RunRecord] | None] = register_state(
    "program that was executed last", ProcessValue(None)
)


def remember(program: Program, record: RunRecord) -> None:
    """Notes that a program is executed."""
    _last.value = (weakref.ref(program), record)


def last_program() -> tuple[Program, RunRecord] | None:
    """Returns the program that was executed last with its times; None without one that is still in use."""
    if _last.value is None:
        return None
    program = _last.value[0]()
    return None if program is None else (program, _last.value[1])
