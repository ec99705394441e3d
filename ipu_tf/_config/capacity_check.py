"""`CapacityCheck`: holds programs against the published memory of their IPUs, with a warning or an error.

A program is traced again for it, which takes seconds for a large one: it is done only where XLA's figure is too large,
and for pipelines on several JAX devices, of which XLA has none.
"""

from __future__ import annotations

import dataclasses

from ipu_tf._config.errors import resource_exhausted
from ipu_tf._config.messages import LOGGER, warn_user
from ipu_tf.device.program.program import Program
from ipu_tf.device.run.run_record import RunRecord
from ipu_tf.reports.build import report_of
from ipu_tf.reports.capacity import IPU_BYTES, CapacityWarning, capacity_text


@dataclasses.dataclass(frozen=True)
class CapacityCheck:
    """What is done with programs that need more than the memory of their IPUs.

    Attributes:
        ipus: IPUs of each device, by its ordinal.
        is_error: whether they are an error before they run, not a warning after they were compiled.
    """

    ipus: tuple[int, ...]
    is_error: bool = False

    def before(self, program: Program, record: RunRecord) -> None:
        """Checks a program that was not executed yet.

        Raises:
            tf.errors.ResourceExhaustedError: if it needs too much, and that is an error.
        """
        text = self._text(program, record) if self.is_error else ""
        if text:
            raise resource_exhausted(text)

    def compiled(self, program: Program, record: RunRecord) -> None:
        """Warns of a program that was compiled, once, if it needs too much.

        It is looked at where XLA's own figure says so, or where XLA has none: of a pipeline on several JAX devices.
        """
        looked_at = record.in_stages or record.xla_bytes > self._bytes(program, record) * program.replicas
        if self.is_error or not looked_at or record.capacity_checked:
            return
        record.capacity_checked = True
        try:
            text = self._text(program, record)
        except Exception as error:  # noqa: BLE001 - a report that fails must not end the user's training
            LOGGER.warning("ipu_tf: whether %s fits on its IPUs is not known: %r", program.readable_name, error)
            return
        if text:
            warn_user(text, CapacityWarning)

    def _bytes(self, program: Program, record: RunRecord) -> int:
        ipus = self.ipus[record.ordinal] if record.ordinal < len(self.ipus) else 1
        return IPU_BYTES * max(ipus // program.replicas, 1)

    def _text(self, program: Program, record: RunRecord) -> str:
        report, fits = report_of(program), self._bytes(program, record)
        return capacity_text(report, fits, fits // IPU_BYTES) if report.peak > fits else ""
