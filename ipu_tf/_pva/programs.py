"""`Program` and `ProgramVisitor`: the operations of a report as `pva` visits them."""

from __future__ import annotations

import enum
from typing import Any

from ipu_tf._pva.view import View
from ipu_tf.reports.part import Operation, Value


class ProgramType(enum.Enum):
    """Types of programs. Reports here have `OnTileExecute`, `Repeat`, `RepeatWhile`, and `Switch` for branches."""

    OnTileExecute = "OnTileExecute"
    DoExchange = "DoExchange"
    GlobalExchange = "GlobalExchange"
    StreamCopyBegin = "StreamCopyBegin"
    StreamCopyMid = "StreamCopyMid"
    StreamCopyEnd = "StreamCopyEnd"
    OnEveryTileSwitch = "OnEveryTileSwitch"
    Repeat = "Repeat"
    RepeatWhile = "RepeatWhile"
    Sequence = "Sequence"
    Switch = "Switch"
    Sync = "Sync"


class Program(View):
    """An operation of a report.

    Args:
        number: its number, which is its `_id`.
        operation: the operation.
        values: the values that are alive while it runs.

    Attributes:
        name: its scopes and its JAX primitive.
        type: a `Program.Type`.
        vars: the variables that are alive while it runs, with `name` and `size`.
    """

    Type = ProgramType

    def __init__(self, number: int, operation: Operation, values: tuple[Value, ...]) -> None:
        super().__init__("program", _id=number, name=operation.name, type=_type(operation))
        self._values = values

    @property
    def vars(self) -> tuple[View, ...]:
        """The variables that are alive while it runs, the largest first."""
        return tuple(map(variable, self._values))

    def accept(self, visitor: ProgramVisitor) -> None:
        """Calls the visitor's method for this type of program, such as `visitOnTileExecute`."""
        getattr(visitor, f"visit{self.type.value}")(self)


class ProgramVisitor:
    """Visitor of programs: subclasses have methods such as `visitOnTileExecute(self, program)`; others do nothing."""

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("visit"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return lambda program: None


def variable(value: Value) -> View:
    """Returns a value as a variable of `pva`, with `name` and `size` in bytes."""
    return View("variable", name=value.name, size=value.bytes)


def _type(operation: Operation) -> ProgramType:
    if operation.branches:
        return ProgramType.Switch
    if not operation.body:
        return ProgramType.OnTileExecute
    return ProgramType.RepeatWhile if operation.trips is None else ProgramType.Repeat
