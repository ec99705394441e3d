"""Prints the table of a model's pipeline stage assignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from keras_ipu.pipeline.graph import ModelKind

_SEQUENTIAL = (60, ("Layer (type)", "Pipeline Stage"), (0.5, 1.0))
_GRAPH = (89, ("Layer (type) (node index)", "Input Layers", "Pipeline Stage"), (0.4, 0.8, 1.0))


def print_summary(
    name: str,
    kind: ModelKind,
    assignments: Sequence[Any],
    line_length: int | None,
    print_fn: Callable[[str], Any],
) -> None:
    """Prints the table.

    Args:
        name: the model's.
        kind: the model's.
        assignments: of its layers.
        line_length: characters in a line; None for 60, or 89 where the input layers are shown.
        print_fn: takes each line.
    """
    usual, headers, shares = _SEQUENTIAL if kind is ModelKind.SEQUENTIAL else _GRAPH
    width = line_length or usual
    ends = [int(width * share) for share in shares]
    print_fn(f'Model: "{name}"')
    print_fn("_" * width)
    print_fn(_line(headers, ends))
    print_fn("=" * width)
    _print_rows(assignments, width, ends, print_fn)


def _print_rows(assignments: Sequence[Any], width: int, ends: Sequence[int], print_fn: Callable[[str], Any]) -> None:
    for place, assignment in enumerate(assignments):
        if assignment.is_nested_model:
            print_fn(f'Nested Model: "{assignment.nested_model.name}"')
            print_fn("-" * width)
            _print_rows(assignment.pipeline_stage_assignments, width, ends, print_fn)
            continue
        for row in _rows(assignment, len(ends)):
            print_fn(_line(row, ends))
        last = place + 1 == len(assignments) or assignments[place + 1].is_nested_model
        print_fn(("=" if last else "_") * width)


def _rows(assignment: Any, columns: int) -> list[Sequence[str]]:
    """Returns the table row of a layer, and further rows for more inputs."""
    layer, stage = assignment.layer, str(assignment.pipeline_stage)
    title = f"{layer.name} ({type(layer).__name__})"
    if columns == len(_SEQUENTIAL[1]) or not hasattr(assignment, "node_index"):
        return [(title, *[""] * (columns - 2), stage)]
    inputs = [each.name for each in assignment.inbound_layers] or [""]
    first = (f"{title} ({assignment.node_index})", inputs[0], stage)
    return [first, *(("", name, "") for name in inputs[1:])]


def _line(fields: Sequence[str], ends: Sequence[int]) -> str:
    line = ""
    for place, (field, end) in enumerate(zip(fields, ends, strict=True)):
        line = (line if place == 0 else line[:-1] + " ") + field
        line = line[:end].ljust(end)
    return line
