"""What lowering says when it cannot lower."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class UnsupportedOp:
    """One kind of op the importer has no rule for, and where in the user's model it came from.

    Attributes:
        name: the op as StableHLO spells it, e.g. `stablehlo.custom_call @TopK`.
        reason: why it cannot be imported.
        origins: TensorFlow name scopes of the ops, e.g. `sequential/dense/MatMul`.
    """

    name: str
    reason: str
    origins: tuple[str, ...]


class UnsupportedOpsError(NotImplementedError):
    """A program has ops the emulated device cannot run. Lists all of them at once.

    Attributes:
        ops: the unsupported ops, one entry for each kind.
    """

    def __init__(self, program: str, ops: tuple[UnsupportedOp, ...]) -> None:
        self.ops = ops
        lines = [f"  {op.name}: {op.reason} (from {_shortened(op.origins)})" for op in ops]
        super().__init__(
            f"The program `{program}` uses {len(ops)} kind(s) of op that the emulated IPU cannot run:\n"
            + "\n".join(lines)
            + "\nNothing was run. Move these parts to the host, or write them with other TensorFlow ops."
        )


def _shortened(origins: tuple[str, ...], most: int = 4) -> str:
    shown = ", ".join(origins[:most])
    return shown if len(origins) <= most else f"{shown} and {len(origins) - most} more places"


class LoweringError(ValueError):
    """TensorFlow could not turn a function into StableHLO; the message says what TensorFlow said."""
