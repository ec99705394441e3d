"""Draws the pictures of the documents: `python docs/pictures/make_pictures.py` writes them beside this file."""

from __future__ import annotations

from pathlib import Path

from ipu_tf.pipeline import PipelineShape, TimetablePicture, interleaved

HERE = Path(__file__).resolve().parent


def pictures() -> dict[str, str]:
    """Returns the pictures as SVG documents, by the names of their files."""
    heading = "A pipeline of 4 stages on 4 IPUs: one weight update from 8 micro-batches, interleaved schedule"
    return {"timetable.svg": TimetablePicture(interleaved(PipelineShape(4), 8), heading=heading).svg(width=860)}


if __name__ == "__main__":
    for name, text in pictures().items():
        (HERE / name).write_text(text, encoding="utf-8")
