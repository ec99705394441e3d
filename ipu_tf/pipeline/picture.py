"""`TimetablePicture`: a timetable that notebooks show as a picture and terminals as text."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from ipu_tf.device.run.pipeline_timer import Measured
from ipu_tf.device.schedule.timetable import Timetable
from ipu_tf.pipeline.costs import StageTimes
from ipu_tf.pipeline.svg import timetable_svg
from ipu_tf.pipeline.text import timetable_text
from ipu_tf.pipeline.timing import Bubble, bubble


@dataclasses.dataclass(frozen=True)
class TimetablePicture:
    """A timetable with the times of its stages, as it is shown: `print` gives text, a notebook the picture.

    Attributes:
        timetable: the timetable.
        times: how long the passes of each stage take; None for 1 forward, 2 backward, 1 recomputed.
        heading: the picture's title; None for schedule, stages, devices and micro-batches.
        measured: tasks with measured times, such as `pipeline_counts().measured`, which the picture shows below.

    Example:
        >>> from ipu_tf.pipeline import PipelineShape, TimetablePicture, grouped
        >>> picture = TimetablePicture(grouped(PipelineShape(4), 8))
        >>> f"{picture.bubble.time_share:.0%} of the time idle"
        '27% of the time idle'
        >>> picture.svg()[:4]
        '<svg'
    """

    timetable: Timetable
    times: tuple[StageTimes, ...] | None = None
    heading: str | None = None
    measured: tuple[Measured, ...] = dataclasses.field(repr=False, default=())

    @property
    def bubble(self) -> Bubble:
        """The idle time of the devices."""
        return bubble(self.timetable, self.times)

    def svg(self, width: float | None = 1000.0) -> str:
        """The picture as an SVG document, `width` pixels wide if a tick fits; None for a single band."""
        return timetable_svg(self.timetable, self.times, self.heading, width, self.measured)

    def save(self, path: str | os.PathLike[str], width: float | None = 1000.0) -> None:
        """Writes the SVG document to a file; see `svg`."""
        Path(path).write_text(self.svg(width), encoding="utf-8")

    def __str__(self) -> str:
        """The timetable as text, a column a tick."""
        return timetable_text(self.timetable)

    def _repr_html_(self) -> str:
        """The picture, for notebooks."""
        return self.svg()
