"""Prints and draws the timetables of the three pipeline schedules, with idle time and memory of each IPU.

Nothing is computed, and TensorFlow is not imported: timetables are data. F is a forward pass, R its repetition, B a
backward pass, each with its micro-batch; U is the weight update, and a dot an idle IPU.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

from ipu_tf import pipeline
from ipu_tf.pipeline import PipelineShape, Recomputation, Schedule, Timetable


def parse(argv: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parses the command line; returns the options and their parser."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, default=3, help="stages of the pipeline (3)")
    parser.add_argument("--micro-batches", type=int, help="micro-batches of an execution (twice the stages)")
    parser.add_argument(
        "--device-mapping", type=int, nargs="+", metavar="IPU", help="for each stage its IPU (0 1 2 ...)"
    )
    parser.add_argument("--inference", action="store_true", help="forward passes alone")
    parser.add_argument("--recompute", action="store_true", help="recompute activations instead of keeping them")
    parser.add_argument("--svg", type=Path, metavar="FOLDER", help="write a picture of each schedule to this folder")
    parser.add_argument("--trace", type=Path, metavar="FOLDER", help="write a trace of each, for ui.perfetto.dev")
    return parser, parser.parse_args(argv)


def plan(options: argparse.Namespace, schedule: Schedule) -> Timetable:
    """The timetable of one schedule for the pipeline that the options describe.

    Raises:
        ValueError: the schedule cannot run so many micro-batches, or the mapping does not fit.
        NotImplementedError: the schedule does not go with the mapping.
    """
    shape = PipelineShape(
        options.stages,
        device_mapping=tuple(options.device_mapping or ()),
        training=not options.inference,
        recomputation=pipeline.default_recomputation(schedule) if options.recompute else Recomputation.NONE,
    )
    count = 2 * options.stages if options.micro_batches is None else options.micro_batches
    return pipeline.timetable(schedule, shape, count)


def plans(options: argparse.Namespace) -> list[Timetable]:
    """Returns the timetables of all schedules that the options allow; prints why others do not apply."""
    found = []
    for schedule in Schedule:
        try:
            found.append(plan(options, schedule))
        except (ValueError, NotImplementedError) as error:
            print(f"{schedule.name.lower()}: {error}\n")
    return found


def write(folder: Path, timetable: Timetable, suffix: str, text: str) -> None:
    """Writes a file named after the timetable's schedule, and prints its name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{timetable.schedule.name.lower()}{suffix}"
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path}")


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the timetables and a table that compares them, and writes the requested files."""
    parser, options = parse(argv)
    timetables = plans(options)
    if not timetables:
        parser.exit(1, "No schedule can run this.\n")
    for timetable in timetables:
        print(pipeline.timetable_text(timetable, width=shutil.get_terminal_size((120, 24)).columns) + "\n")
    print("With a forward pass of 1, a backward pass of 2 and a recomputed one of 1:")
    print(pipeline.schedule_table(timetables))
    for timetable in timetables:
        if options.svg:
            write(options.svg, timetable, ".svg", pipeline.timetable_svg(timetable))
        if options.trace:
            write(options.trace, timetable, ".json", pipeline.trace_json(timetable))


if __name__ == "__main__":
    main()
