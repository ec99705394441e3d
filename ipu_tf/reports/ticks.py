"""`over_ticks`: the stages of a pipeline as one part, whose operations are the ticks of its timetable."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from ipu_tf.device.schedule.timetable import Timetable
from ipu_tf.reports.part import Category, Operation, Part, StageMemory, Value

OVER_TICKS = "pipeline over ticks"
"""The kind of such a part."""


def over_ticks(part: Part) -> Part:
    """Returns the memory of all stages of a pipeline over one weight update, a tick in place of an operation.

    A part without a timetable is returned as it is.

    Args:
        part: of a report.

    Example:
        >>> loop = Part("loop", (), ())
        >>> over_ticks(loop) is loop
        True
    """
    if part.pipeline is None or not part.stages:
        return part
    ticks = range(part.pipeline.ticks)
    operations = tuple(Operation(_tick_name(part.pipeline, tick), _live(part.stages, tick)) for tick in ticks)
    values = tuple(value for stage in part.stages for value in stage_values(stage, part.stages))
    return Part(OVER_TICKS, operations, values)


def _tick_name(timetable: Timetable, tick: int) -> str:
    """Returns the tasks of a tick, each stage's in its order: `tick 5: F4, B1 in stage 0; F2 in stage 1`."""
    stages: dict[int, list[str]] = {}
    for task in dict.fromkeys(task for cell in timetable.cells[tick] for task in cell):
        stages.setdefault(task.stage, []).append(task.label)
    return f"tick {tick}: " + "; ".join(f"{', '.join(labels)} in stage {stage}" for stage, labels in stages.items())


def _live(stages: Sequence[StageMemory], tick: int) -> dict[Category, int]:
    found: Counter[Category] = Counter()
    for stage in stages:
        found.update(stage.live(tick))
    return {category: found[category] for category in Category}


def stage_values(stage: StageMemory, stages: Sequence[StageMemory]) -> Iterator[Value]:
    """Yields what a stage has over the ticks, by the names in `over_ticks`: with the stage where several have it."""
    names = Counter(value.name for each in stages for value in each.values)
    for value in stage.values:
        name = f"{value.name} of stage {stage.stage}" if names[value.name] > 1 else value.name
        yield Value(name, value.category, value.bytes, value.first, value.last)
    changing = (
        (Category.STASHES, stage.stashes),
        (Category.TEMPORARIES, stage.temporaries),
        (Category.FEEDS, stage.feeds),
    )
    for category, series in changing:
        tick = 0
        for size, run in itertools.groupby(series):
            length = len(list(run))
            if size:
                yield Value(f"{category.value} of stage {stage.stage}", category, size, tick, tick + length - 1)
            tick += length
