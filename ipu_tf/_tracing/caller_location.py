"""Finds the line of the user's program that calls something, for error messages."""

from __future__ import annotations

from ipu_tf.device.op_locations import OpLocation
from ipu_tf.device.source_lines import lines_of_stack


def caller_location(what: str) -> str:
    """Returns what is called, in a word or two, with the user's source line that calls it."""
    return str(OpLocation(what, lines=lines_of_stack()))
