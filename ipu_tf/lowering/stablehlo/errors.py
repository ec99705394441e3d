"""Errors of lowering, with op, user's source line and advice: `LoweringError`, `UnsupportedOpsError`."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from ipu_tf.device.op_locations import OpLocation, described, has_location, mark_located, with_text
from ipu_tf.device.source_lines import indented


@dataclasses.dataclass(frozen=True)
class UnsupportedOp:
    """Op type without a rule in the importer, with the user's source lines that created it.

    Attributes:
        name: the op as TensorFlow or StableHLO spells it, e.g. `stablehlo.custom_call @TopK`.
        reason: why it cannot be imported.
        locations: the ops of this kind, by TensorFlow's names, and the lines that made them.
        advice: what to do instead; may be empty.
    """

    name: str
    reason: str
    locations: tuple[OpLocation, ...]
    advice: str = ""

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.reason}", indented(described(self.locations)), self.advice and f"  {self.advice}"]
        return "\n".join(filter(None, lines))


class UnsupportedOpsError(NotImplementedError):
    """Raised if a program has unsupported ops; lists all of them, each with the user's source line.

    Attributes:
        ops: the unsupported ops, one entry for each kind.
    """

    def __init__(self, program: str, ops: tuple[UnsupportedOp, ...]) -> None:
        self.ops = ops
        super().__init__(
            f"The program `{program}` uses {len(ops)} kind(s) of op that the emulated IPU cannot run:\n"
            + "\n".join(indented(op, "  ") for op in ops)
            + "\nNothing was run. Move these parts to the host, or write them with other TensorFlow ops."
        )


class LoweringError(ValueError):
    """Raised if TensorFlow cannot lower a function to StableHLO; the message has TensorFlow's own."""


def located(error: BaseException, program: str, name: str, location: OpLocation) -> BaseException:
    """Adds an op and the user's source line to the message of an error; of the same type if possible.

    Args:
        error: the error. One that has a location already is given back as it is.
        program: name of the program.
        name: the op as StableHLO spells it.
        location: where it was made.
    """
    if has_location(error) or isinstance(error, UnsupportedOpsError):
        return error
    if type(error) is NotImplementedError:
        return UnsupportedOpsError(program, (UnsupportedOp(name, str(error), (location,)),))
    if isinstance(error, tf.errors.OpError):
        made = type(error)(error.node_def, error.op, f"{error.message}\n{location}")
        return mark_located(made.with_traceback(error.__traceback__))
    return with_text(error, str(location))
