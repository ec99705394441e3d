"""Runs many fuzzed programs in a process of its own, which is restarted after a crash."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from tests.xla_fuzz.jobs import Campaign

_SILENCE = 300.0
"""Seconds after which a program counts as hanging."""
Listener = Callable[["Report"], None]


@dataclasses.dataclass
class Report:
    """Findings of a campaign.

    Attributes:
        faults: a text for each wrong result, and for each program that failed, hung or ended the process.
        elements: of the largest input of each case whose result was held against NumPy.
        seconds: how long it all took.
        ran: how much of that was spent in the programs, compilation included.
    """

    faults: list[str] = dataclasses.field(default_factory=list)
    elements: list[int] = dataclasses.field(default_factory=list)
    seconds: float = 0.0
    ran: float = 0.0

    @property
    def compared(self) -> int:
        """Cases whose results were held against NumPy."""
        return len(self.elements)

    def add(self, line: Mapping[str, Any]) -> None:
        """Takes in what the process says of one program."""
        self.faults += line["faults"]
        self.elements += line["elements"]
        self.ran += line["ran"]


def run_campaign(
    campaign: Campaign, environment: Mapping[str, str] | None = None, on_program: Listener = lambda report: None
) -> Report:
    """Runs a campaign to its end.

    Args:
        campaign: what to run.
        environment: variables of the process, beside those of this one.
        on_program: called after each program.

    Raises:
        RuntimeError: if the process does not get as far as the first program.
    """
    report, start, first = Report(), time.perf_counter(), 0
    while first < len(campaign.jobs()):
        with _process(campaign, first, environment or {}) as process:
            first = _listened(process, first, report, on_program) + 1
    report.seconds = time.perf_counter() - start
    return report


def _process(campaign: Campaign, first: int, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    told = json.dumps(dataclasses.asdict(campaign))
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.xla_fuzz.worker", told, str(first)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", **environment},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _listened(process: subprocess.Popen[str], first: int, report: Report, on_program: Listener) -> int:
    """Takes in what a process says until it ends or hangs; the number of its last program."""
    assert process.stdout is not None
    lines: queue.Queue[str | None] = queue.Queue()
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    last, text = first - 1, ""
    try:
        while (said := lines.get(timeout=_SILENCE)) is not None:
            line = json.loads(said)
            if "begun" in line:
                last, text = line["begun"], line["text"]
                continue
            report.add(line)
            on_program(report)
    except queue.Empty:
        process.kill()
        report.faults.append(f"hangs: {text}")
        return last
    code = process.wait()
    if last < first:
        raise RuntimeError(f"`python -m tests.xla_fuzz.worker` did not get as far as a program; it ended with {code}.")
    if code:
        report.faults.append(f"ends the process ({code}): {text}")
        on_program(report)
    return last


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    for line in stream:
        if line.startswith("{"):
            lines.put(line)
    lines.put(None)
