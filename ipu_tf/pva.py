"""Stand-in for `pva`, Graphcore's reader of Poplar reports: reads reports of an emulated IPU (`ipu_tf.reports`)."""

from __future__ import annotations

import os
from typing import Any, NoReturn

from ipu_tf._pva.programs import Program, ProgramVisitor
from ipu_tf._pva.report import opened
from ipu_tf._pva.trace import Event, Trace, opened_trace
from ipu_tf._pva.view import INSTEAD
from ipu_tf.emulation import EmulationError
from ipu_tf.reports.files import load

__all__ = ["Event", "Program", "ProgramVisitor", "openReport", "openTrace"]


def openReport(path: str | os.PathLike[str], debugPath: str | os.PathLike[str] = "") -> Any:  # noqa: N802, N803
    """Opens a report that `autoReport` or `ipu_tf.reports.save` wrote. Each IPU is one tile.

    Answered are `poplarVersion`, `version`, `compilation` with `target`, `tiles`, `ipus`, `programs`,
    `alwaysLiveVariables` and `livenessProgramSteps`, and `execution.runs`. Whatever else is asked for raises an
    `EmulationError` that names it.

    Args:
        path: of the report, `profile.pop`.
        debugPath: of Poplar's debug information, which is not read.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if there is none.
        ValueError: if it is damaged, or is no report of this package, such as one that Poplar wrote.
    """
    return opened(load(path))


def openTrace(path: str | os.PathLike[str]) -> Trace:  # noqa: N802
    """Opens a trace of the host that `PVTI_OPTIONS` asked for: processes, threads, and events within events.

    Args:
        path: of the `.pvti` file.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if there is none.
        ValueError: if it is damaged, or is no trace of this package, such as one that Graphcore's library wrote.
    """
    return opened_trace(path)


def __getattr__(name: str) -> NoReturn:
    # Python itself asks modules for dunder names.
    if name.startswith("__"):
        raise AttributeError(f"module 'ipu_tf.pva' has no attribute {name!r}")
    raise EmulationError(f"pva.{name} is not emulated. {INSTEAD}")
