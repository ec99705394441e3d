"""The published memory of an IPU, and what is said of a program that needs more."""

from __future__ import annotations

from ipu_tf.pipeline.tables import bytes_text
from ipu_tf.reports.part import Category, Part
from ipu_tf.reports.report import Report

TILES_OF_IPU = 1472
BYTES_OF_TILE = 624 * 1024
IPU_BYTES = TILES_OF_IPU * BYTES_OF_TILE
"""Published for a Mk2 IPU."""
_MOST_VALUES = 5
_TRY = {
    Category.STASHES: "smaller micro-batches with gradient accumulation, recomputation, or more pipeline stages",
    Category.TEMPORARIES: "smaller micro-batches with gradient accumulation, recomputation, or more pipeline stages",
    Category.ACCUMULATORS: "accumulators of float16, or more pipeline stages",
    Category.OPTIMIZER: "an optimizer with fewer moments, moments of float16, or more pipeline stages",
    Category.FEEDS: "smaller micro-batches",
}
_TRY_ELSE = "more pipeline stages, or weights of float16"


class CapacityWarning(UserWarning):
    """A program needs more memory than the published 1,472 tiles of 624 KiB of each of its IPUs."""


def capacity_text(report: Report, fits: int, ipus: int) -> str:
    """Returns what is said of a program that needs more than the bytes of its IPUs: largest values, what to try."""
    part = max(report.parts, key=lambda each: each.peak)
    largest = part.alive_at(part.peak_index)[:_MOST_VALUES]
    values = "; ".join(f"{each.name} ({each.category.value}) {bytes_text(each.bytes)}" for each in largest)
    tried = dict.fromkeys(_TRY.get(category, _TRY_ELSE) for category in _most_of(part))
    return (
        f"{report.program} needs {bytes_text(report.peak)} of one replica at its peak (modelled from the program; XLA "
        f"and Poplar may need less, or more). Published for {ipus} IPU{'s' if ipus > 1 else ''} of {TILES_OF_IPU} "
        f"tiles of {BYTES_OF_TILE // 1024} KiB: {bytes_text(fits)}. Here it runs; on hardware it would not fit. "
        f"The largest values at the peak: {values}. Try {'; '.join(tried)}. `ipu_tf.reports.last()` has all. "
        'The option of Poplar\'s engine `"debug.allowOutOfMemory": "true"` switches this warning off, "false" makes it '
        "an error."
    )


def _most_of(part: Part) -> list[Category]:
    """Returns the two categories with the most bytes at the peak, the larger first."""
    live = part.operations[part.peak_index].live
    return sorted((each for each in live if live[each]), key=lambda each: -live[each])[:2]
