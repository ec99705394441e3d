"""Command line of the fuzz, `python -m tests.xla_fuzz`: runs a campaign and prints its findings."""

from __future__ import annotations

import argparse
import sys

from tests.xla_fuzz.campaign import Report, run_campaign
from tests.xla_fuzz.jobs import Campaign


def main() -> None:
    """Ends with status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.xla_fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="random programs (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (%(default)s)")
    asked = parser.parse_args()
    told = 0

    def on_program(report: Report) -> None:
        nonlocal told
        for fault in report.faults[told:]:
            print(fault, flush=True)
        told = len(report.faults)

    report = run_campaign(Campaign(asked.cases, asked.seed), on_program=on_program)
    on_program(report)
    sizes = sorted(report.elements) or [0]
    large = sum(size >= 2**14 for size in sizes)
    print(
        f"{report.compared} cases compared, {len(report.faults)} faults; inputs of {sizes[0]} to {sizes[-1]} elements, "
        f"{large} of 2^14 or more; {report.seconds:.0f} s, {report.ran:.0f} of them in programs"
    )
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
