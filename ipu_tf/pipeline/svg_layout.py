"""Layout of a timetable's SVG picture: bands of ticks, positions in pixels, labels with room for their text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise

from ipu_tf.device.schedule.timetable import Timetable
from ipu_tf.pipeline.costs import StageTimes
from ipu_tf.pipeline.text import lane_labels, lanes
from ipu_tf.pipeline.timing import Planned, plan, tick_lengths

#: Sizes in pixels: the mean box's width, a lane's height, the room above a band's lanes and below them.
BOX, LANE, ABOVE, BELOW = 36.0, 26.0, 22.0, 26.0
#: The least width of the weight update's box, of a mean box: it is shown even if it takes no time.
_UPDATE_WIDTH = 0.6
#: An upper bound of a letter's width, for text of 1 pixel in a sans-serif font.
_LETTER = 0.64
#: The least room between the numbers of a time axis.
BETWEEN = 48.0


@dataclasses.dataclass(frozen=True)
class Label:
    """A text at a place.

    Attributes:
        text: the text.
        x: where it begins, in pixels from the left of the lanes.
    """

    text: str
    x: float


@dataclasses.dataclass(frozen=True)
class Layout:
    """Places of a picture. A band is a row of ticks; a timetable too wide for one continues in the next.

    Attributes:
        timetable: the timetable.
        planned: for each tick its tasks with their times.
        times: when ticks begin and end, in the unit of the stages' times.
        edges: the same in pixels, as if all were one band.
        bands: the ticks of each band.
        left: the room left of the lanes, for their names.
    """

    timetable: Timetable
    planned: tuple[tuple[Planned, ...], ...]
    times: tuple[float, ...]
    edges: tuple[float, ...]
    bands: tuple[range, ...]
    left: float

    @property
    def band_height(self) -> float:
        """Pixels from one band to the next."""
        return ABOVE + len(tuple(lanes(self.timetable))) * LANE + BELOW

    @property
    def width(self) -> float:
        """Pixels of the widest band's ticks."""
        return max(self.end(band) for band in self.bands)

    def x(self, band: range, tick: int, time: float) -> float:
        """Pixels from the left of a band's lanes to a time within one of its ticks."""
        start, end = self.edges[tick] - self.edges[band.start], self.edges[tick + 1] - self.edges[band.start]
        lasts = self.times[tick + 1] - self.times[tick]
        return start + (end - start) * (time - self.times[tick]) / lasts if lasts else start

    def end(self, band: range) -> float:
        """Pixels from the left of a band's lanes to its end."""
        return self.edges[band.stop] - self.edges[band.start]

    def phase_labels(self, band: range) -> Iterator[Label]:
        """The phases' names above a band; one that lacks room moves left or right, and none is over another."""
        found = [
            Label(name, self.edges[max(ticks.start, band.start)] - self.edges[band.start] + 2)
            for name, ticks in self.timetable.phases.named()
            if max(ticks.start, band.start) < min(ticks.stop, band.stop)
        ]
        free = 0.0
        for place, label in enumerate(found):
            found[place] = dataclasses.replace(label, x=max(label.x, free))
            free = found[place].x + text_width(label.text) + 6
        end = max(self.end(band), sum(text_width(label.text) + 6 for label in found))
        for place in reversed(range(len(found))):
            x = max(0.0, min(found[place].x, end - text_width(found[place].text)))
            found[place] = dataclasses.replace(found[place], x=x)
            end = x - 6
        return iter(found)

    def time_labels(self, band: range) -> Iterator[Label]:
        """The numbers of a band's time axis, at round times."""
        first, last = self.times[band.start], self.times[band.stop]
        if last <= first:
            return
        step = round_step((last - first) * BETWEEN / self.end(band))
        for tick, (start, end) in enumerate(pairwise(self.times)):
            if tick in band and end > start:
                number = math.ceil(start / step - 1e-9)
                while number * step < end * (1 - 1e-9) or (tick == band[-1] and number * step <= end * (1 + 1e-9)):
                    yield Label(f"{number * step:g}", self.x(band, tick, number * step))
                    number += 1


def layout_of(timetable: Timetable, times: Sequence[StageTimes] | None, width: float | None) -> Layout:
    """Lays out a timetable.

    Args:
        timetable: the timetable.
        times: how long the passes of each stage take.
        width: the pixels that a band may have, lanes' names included, if a tick fits; None for a single band.
    """
    planned = plan(timetable, times)
    of_tick = {tick: tuple(tasks) for tick, tasks in groupby(planned, lambda one: one.tick)}
    lasting = [one.end - one.start for one in planned if one.end > one.start]
    scale = BOX * len(lasting) / sum(lasting) if lasting else 0.0
    lengths = tick_lengths(timetable, times)
    pixels = [scale * length for length in lengths]
    for tick in timetable.phases.update:
        pixels[tick] = max(pixels[tick], _UPDATE_WIDTH * BOX)
    left = 16 + max(map(text_width, lane_labels(timetable)))
    return Layout(
        timetable,
        tuple(of_tick.get(tick, ()) for tick in range(timetable.ticks)),
        tuple(accumulate(lengths, initial=0.0)),
        tuple(accumulate(pixels, initial=0.0)),
        tuple(_bands(pixels, math.inf if width is None else width - left - 32)),
        left,
    )


def text_width(text: str, size: float = 11) -> float:
    """An upper bound of the pixels that a text is wide."""
    return _LETTER * size * len(text)


def _bands(pixels: Sequence[float], room: float) -> Iterator[range]:
    """Ranges of ticks that fit into the room, as equal as they can be; at least a tick each."""
    count = max(1, math.ceil(sum(pixels) / room)) if room > 0 else len(pixels)
    even = max(pixels) + sum(pixels) / count
    start, used = 0, 0.0
    for tick, wide in enumerate(pixels):
        if tick > start and used + wide > min(room, even):
            yield range(start, tick)
            start, used = tick, 0.0
        used += wide
    yield range(start, len(pixels))


def round_step(least: float) -> float:
    """The least of 1, 2, 5, 10, 20, ... (or their tenths, hundredths, ...) that is not below a number."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
