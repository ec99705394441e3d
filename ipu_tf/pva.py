"""Stand-in for `pva`, Graphcore's reader of Poplar reports: refuses every call, as there are no such reports."""

from __future__ import annotations

from typing import Any, NoReturn

from ipu_tf.emulation import EmulationError

_INSTEAD = (
    "Poplar reports hold cycles and tile memory of an IPU, and an emulated one has neither. "
    "ipu_tf.emulation.device_counts() tells what the device compiled and ran; jax.profiler measures this machine."
)


def openReport(path: str, executionPath: str = "") -> NoReturn:  # noqa: N802, N803 - pva's names
    """Opens a Poplar report, which emulation does not write.

    Args:
        path: of the report.
        executionPath: of its execution profile.

    Raises:
        EmulationError: always.
    """
    raise EmulationError(f"pva.openReport({str(path)!r}): there is no Poplar report. {_INSTEAD}")


class ProgramVisitor:
    """Visitor of the steps of a program in a Poplar report, which emulation does not write.

    Raises:
        EmulationError: always, when one is made.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise EmulationError(f"pva.{type(self).__name__}: there is no report whose programs it could visit. {_INSTEAD}")


def __getattr__(name: str) -> NoReturn:
    # Python itself asks modules for dunder names.
    if name.startswith("__"):
        raise AttributeError(f"module 'ipu_tf.pva' has no attribute {name!r}")
    raise EmulationError(f"pva.{name}: there are no Poplar reports for it. {_INSTEAD}")
