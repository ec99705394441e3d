"""Finds StableHLO ops with dynamic result shapes or unsupported dtypes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ipu_tf.lowering.stablehlo.op import array_types

UNKNOWN_SHAPE = "the shape of its result depends on values, and the device needs fixed shapes"
UNKNOWN_DTYPE = "its result is of a type that the device has not"


def makes_unknown_type(operation: Any) -> str:
    """Describes which of an operation's result types is unknown; empty if none, or if an operand's is already."""
    made = _what_is_unknown(operation.results)
    return made if made != _what_is_unknown(operation.operands) else ""


def _what_is_unknown(values: Iterable[Any]) -> str:
    for text in (str(value.type) for value in values):
        if "?" in text:
            return UNKNOWN_SHAPE
        try:
            _ = text.startswith(("tensor", "tuple")) and array_types(text)
        except NotImplementedError:
            return UNKNOWN_DTYPE
    return ""
