"""`Report`: the parts of a program with their memory, as frozen data, text and HTML."""

from __future__ import annotations

import dataclasses

from ipu_tf.pipeline.tables import bytes_text
from ipu_tf.reports.measured import Measured
from ipu_tf.reports.part import Part
from ipu_tf.reports.text import report_html, report_text


@dataclasses.dataclass(frozen=True)
class PlannedConvolution:
    """How a convolution is computed on this machine.

    Attributes:
        scope: the name scope that its operation has.
        explanation: its shapes, the plan, the reason, and the estimated costs of other plans.
    """

    scope: str
    explanation: str


@dataclasses.dataclass(frozen=True)
class Report:
    """Report on a program. All figures but those in `measured` are modelled, and are those of one replica.

    Attributes:
        program: its name.
        replicas: how many replicas it is for.
        parts: its parts in the order in which they run.
        convolutions: its convolutions in the order in which they are traced.
        measured: times of its compilation and executions; None if they are not known.
    """

    program: str
    replicas: int
    parts: tuple[Part, ...] = dataclasses.field(repr=False)
    convolutions: tuple[PlannedConvolution, ...] = dataclasses.field(repr=False, default=())
    measured: Measured | None = dataclasses.field(repr=False, default=None)

    @property
    def peak(self) -> int:
        """The most bytes that are alive at one operation of any part."""
        return max((part.peak for part in self.parts), default=0)

    def __str__(self) -> str:
        """The report as text, as wide as the terminal."""
        return report_text(self._heading, self.parts, self.measured)

    def _repr_html_(self) -> str:
        return report_html(self._heading, self.parts, self.measured)

    @property
    def _heading(self) -> str:
        replicas = f", {self.replicas} replicas" if self.replicas > 1 else ""
        return f"Program {self.program}{replicas}: peak {bytes_text(self.peak)}"
