"""`opened`: a report of an emulated IPU as `pva.openReport` gives it."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable

from ipu_tf._pva.memory import Homes, always_live
from ipu_tf._pva.programs import Program, variable
from ipu_tf._pva.view import View
from ipu_tf.reports.capacity import IPU_BYTES
from ipu_tf.reports.part import Category, Part, Value
from ipu_tf.reports.report import Report
from ipu_tf.reports.ticks import over_ticks


def opened(report: Report) -> View:
    """Returns the view of a report. Each IPU is one tile; a program without stages has one IPU for each replica."""
    programs = _Programs(report)
    return View(
        "report",
        poplarVersion=_version(),
        version=View("report.version", major=1, minor=0, point=0, isUnstableFormat=False),
        compilation=_compilation(report, programs),
        execution=_execution(report, programs),
    )


class _Programs:
    """The operations of all parts as one list, of pipelines their ticks; and what is alive throughout."""

    def __init__(self, report: Report) -> None:
        parts = tuple(map(over_ticks, report.parts))
        self.peak = max((part.peak for part in parts), default=0)
        self.places = [(part, index) for part in parts for index in range(len(part.operations))]
        self.always = always_live(parts)
        self.always_bytes = sum(value.bytes for value in self.always)
        self._names = {(value.name, value.category) for value in self.always}
        self._homes = Homes(report.parts)
        self.tiles = report.replicas * self._homes.count
        self.on_ipus = tuple(
            (sum(value.bytes for value in self._homes.on(ipu, self.always)), self._homes.peak(ipu, parts))
            for ipu in range(self._homes.count)
        )

    def of_tile(self, tile: int, values: list[Value]) -> list[Value]:
        """Returns those of some values that are on a tile, which is an IPU of a replica."""
        if not 0 <= tile < self.tiles:
            raise IndexError(f"An emulated IPU is one tile: wanted 0 to {self.tiles - 1}. Received: {tile}.")
        return self._homes.on(tile % self._homes.count, values)

    @functools.cached_property
    def all(self) -> tuple[Program, ...]:
        """Every operation."""
        return tuple(self.program(number) for number in range(len(self.places)))

    @functools.cache  # noqa: B019 - the view lives as long as its report
    def program(self, number: int) -> Program:
        """Returns one operation."""
        part, index = self.places[number]
        return Program(number, part.operations[index], part.alive_at(index))

    def step(self, number: int) -> View:
        """Returns an operation with what is alive beside what always is."""
        part, index = self.places[number]
        size = part.operations[index].total - self.always_bytes
        path = "report.compilation.livenessProgramSteps[i]"
        return View(
            path,
            program=self.program(number),
            notAlwaysLiveMemory=_NotAlwaysLive(size, lambda: self._not_always(part, index)),
            notAlwaysLiveMemoryForTile=lambda tile: _listed(self.of_tile(tile, self._not_always(part, index))),
        )

    def _not_always(self, part: Part, index: int) -> list[Value]:
        operation = part.operations[index]
        waiting, others = set(self._names), []
        for value in part.alive_at(index):
            if (value.name, value.category) in waiting:
                waiting.remove((value.name, value.category))  # of a variable's old and new value one is always there
            else:
                others.append(value)
        inside = [Value("inside of the loop or branch", Category.TEMPORARIES, operation.inside, index, index)]
        return others + (inside if operation.inside else [])


class _NotAlwaysLive(View):
    """What is alive at a step beside what always is: `bytes` and `variables`."""

    def __init__(self, size: int, variables: Callable[[], list[Value]]) -> None:
        super().__init__("report.compilation.livenessProgramSteps[i].notAlwaysLiveMemory", bytes=size)
        self._variables = variables

    @property
    def variables(self) -> tuple[View, ...]:
        """The variables, with `name` and `size`."""
        return tuple(map(variable, self._variables()))


def _listed(values: list[Value]) -> _NotAlwaysLive:
    return _NotAlwaysLive(sum(value.bytes for value in values), lambda: values)


def _compilation(report: Report, programs: _Programs) -> View:
    path = "report.compilation"
    tiles = tuple(_tile(f"{path}.tiles[i]", always, peak) for always, peak in programs.on_ipus) * report.replicas
    return View(
        path,
        target=_target(report, programs.tiles),
        tiles=tiles,
        ipus=tuple(View(f"{path}.ipus[i]", tiles=(tile,)) for tile in tiles),
        programs=programs.all,
        alwaysLiveVariables=tuple(map(variable, programs.always)),
        alwaysLiveVariablesForTile=lambda tile: tuple(map(variable, programs.of_tile(tile, programs.always))),
        livenessProgramSteps=tuple(map(programs.step, range(len(programs.places)))),
    )


def _tile(path: str, always: int, peak: int) -> View:
    total = View(f"{path}.memory.total", includingGaps=peak, excludingGaps=peak)
    parts = {"alwaysLiveBytes": always, "notAlwaysLiveBytes": peak - always}
    return View(path, memory=View(f"{path}.memory", total=total, **parts))


def _target(report: Report, ipus: int) -> View:
    size = IPU_BYTES  # here an IPU is one tile with the memory of all
    return View(
        "report.compilation.target",
        numIPUs=ipus,
        numReplicas=report.replicas,
        numTiles=ipus,
        tilesPerIpu=1,
        bytesPerIPU=size,
        bytesPerTile=size,
        totalMemory=size * ipus,
    )


def _execution(report: Report, programs: _Programs) -> View:
    times = report.measured
    count = 0 if times is None else len(times.last_executions)
    steps = tuple(View("report.execution.steps[i]", program=program) for program in programs.all)
    runs = tuple(View("report.execution.runs[i]", name=report.program, steps=steps) for _ in range(count))
    return View("report.execution", runs=runs)


def _version() -> View:
    try:
        text = importlib.metadata.version("ipu_tf")
    except importlib.metadata.PackageNotFoundError:
        text = "0.0.0"
    major, minor, point = (int(number) for number in (*text.split("."), "0", "0")[:3])
    string = f"ipu_tf {text} (emulated)"
    return View("report.poplarVersion", string=string, major=major, minor=minor, point=point, packageHash="emulated")
