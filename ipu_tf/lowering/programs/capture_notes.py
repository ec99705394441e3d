"""`capture_notes`, `graph_notes`: names of captured variables, which are weights or optimizer state, for reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ipu_tf.device.program.parameter_notes import ParameterNotes


def capture_notes(
    captures: Sequence[Any], optimizer_state: Sequence[Any] = (), before: tuple[str, ...] = ()
) -> ParameterNotes:
    """Returns the notes on a program's parameters.

    Args:
        captures: the variables and tensors that are the last parameters.
        optimizer_state: variables of an optimizer.
        before: names of the parameters before them.
    """
    slots = {id(variable) for variable in optimizer_state}
    numbered = list(enumerate(captures, len(before)))
    state = frozenset(number for number, capture in numbered if id(capture) in slots)
    weights = frozenset(number for number, capture in numbered if getattr(capture, "trainable", False))
    return ParameterNotes((*before, *map(_name, captures)), weights - state, state)


def graph_notes(tensors: Sequence[tf.Tensor]) -> ParameterNotes:
    """Returns the notes on a program in the current graph: of the tensors and handles of variables that it takes."""
    trained = {_name(variable) for variable in tf.compat.v1.trainable_variables()}
    names = tuple(map(_name, tensors))
    handles = [number for number, tensor in enumerate(tensors) if tensor.dtype == tf.resource]
    return ParameterNotes(names, frozenset(number for number in handles if names[number] in trained))


def _name(capture: Any) -> str:
    """Returns the name of a captured variable, `dense/kernel`, or of a tensor where it has one."""
    return str(getattr(capture, "name", "constant")).partition(":")[0]
