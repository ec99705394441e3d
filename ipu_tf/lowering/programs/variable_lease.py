"""`VariableLease`: lets other programs use the variables of an execution while it waits for data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ipu_tf.device.memory.residency import RESIDENCY
from ipu_tf.device.run.executable import Executable
from ipu_tf.device.run.interrupts import check_interrupts
from ipu_tf.device.run.lease import NewValues
from ipu_tf.lowering.programs.captures import Captures


class VariableLease:
    """`Lease` of the variables that a program captures.

    Args:
        captures: of the program, its last parameters; the execution has acquired them.
        executable: of the program.
        results: for each result of the program that is a new value of a variable: which result of the lowered module.
    """

    def __init__(self, captures: Captures, executable: Executable, results: Mapping[int, int]) -> None:
        self._captures, self._executable, self._results = captures, executable, results

    def park(self, new_values: NewValues | None) -> None:
        """Lets others use the variables from their present values on, or notes that they have to wait."""
        claim = self._captures.claim
        claim.publish = None
        if new_values is not None:
            claim.exposed = True
            claim.publish = lambda: self._publish(new_values)
        RESIDENCY.claims.park(claim)

    def _publish(self, new_values: NewValues) -> None:
        self._captures.store({self._results[result]: value for result, value in new_values().items()})

    def resume(self) -> Mapping[int, Any]:
        """Waits for others that compute with the variables; returns the variables' values if there were any."""
        if not RESIDENCY.claims.resume(self._captures.claim, check_interrupts):
            return {}
        first = len(self._executable.program.parameters) - self._captures.count
        return {first + place: buffer for place, buffer in self._captures.buffers(self._executable).items()}
