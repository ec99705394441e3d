"""Worker process of a campaign: `python -m tests.xla_fuzz.worker CAMPAIGN FIRST`.

standard output   a line of JSON before each program, and one after it:
                  {"begun": number, "text": ...}    {"done": number, "compared": cases, "faults": [...], ...}
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from tests.xla_fuzz.bounds import OutOfRange
from tests.xla_fuzz.jobs import Campaign, Job
from tests.xla_fuzz.runs import forget, results_of, runs_on

_FORGET = 20
"""Programs after which compiled code is dropped."""


def run(job: Job, seed: int) -> dict[str, Any]:
    """Runs a program and compares its results."""
    cases = [case for case in job.cases(seed) if runs_on(case, job.way)]
    start = time.perf_counter()
    results = results_of(cases, job.way)
    ran = time.perf_counter() - start
    faults, elements = [], []
    for case, result in zip(cases, results, strict=True):
        try:
            fault = case.fault(result)
        except OutOfRange:
            continue
        elements.append(case.elements)
        faults += [f"{job.way}: {fault}"] if fault else []
    return {"faults": faults, "elements": elements, "ran": ran}


def told(line: dict[str, Any]) -> None:
    """Says something to the parent."""
    print(json.dumps(line), flush=True)


def main(arguments: Sequence[str]) -> None:
    """Runs the programs from number FIRST on."""
    campaign, first = Campaign(**json.loads(arguments[0])), int(arguments[1])
    for number, job in enumerate(campaign.jobs()):
        if number < first:
            continue
        told({"begun": number, "text": str(job)})
        try:
            done = run(job, campaign.seed)
        except Exception as error:  # noqa: BLE001 - reported as a fault of this program; the others go on
            message = f"{job}: {type(error).__name__}: {str(error)[:2000]}"
            done = {"faults": [message], "elements": [], "ran": 0.0}
        told({"done": number, **done})
        if number % _FORGET == 0:
            forget()


if __name__ == "__main__":
    main(sys.argv[1:])
