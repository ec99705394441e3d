"""Chooses which results of a call take the memory of which operands: those that nothing reads afterwards.

A result that is written where an operand was is written to lines of the cache that were just read. Written elsewhere
the processor fetches those lines from memory first, only to overwrite them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ipu_tf.device.elementwise.group import Group
from ipu_tf.device.elementwise.grouping import Step
from ipu_tf.device.elementwise.operands import Operand
from ipu_tf.device.elementwise.views import Views
from ipu_tf.device.jaxprs.flat_equations import FlatFunction


def placed_over(
    outputs: Mapping[int, int],
    inputs: Mapping[Operand, int],
    types: Mapping[int, Any],
    replaced: Mapping[int, int],
    unread: Collection[int],
) -> dict[int, int]:
    """Returns for outputs the inputs whose memory they take: read element by element, and in one way only.

    Args:
        outputs: the places of results.
        inputs: the places of operands.
        types: shape and dtype of each value.
        replaced: for some results the operand that each must take the memory of, or of none: a loop's value.
        unread: operands that nothing reads afterwards: other results may take their memory.
    """
    others = {operand.value for operand in inputs if not operand.is_whole}
    whole = {each.value: at for each, at in inputs.items() if each.is_whole and each.value not in others}
    free = [value for value in whole if value in unread]
    found: dict[int, int] = {}
    for output, at in outputs.items():
        wanted = [replaced[output]] if output in replaced else free
        fitting = (each for each in wanted if each in whole and types[each].dtype == types[output].dtype)
        taken = next((each for each in fitting if whole[each] not in found.values()), None)
        if taken is not None:
            found[at] = whole[taken]
    return found


def unread_operands(function: FlatFunction, steps: Sequence[Step]) -> dict[Group, Collection[int]]:
    """Returns for each group the values that only it and steps before it read, and that another step has made.

    A step is before another if a result depends on it: XLA has its own order of the others, and copies a value that is
    written over where it might be read later. Arguments and constants are not among the values: what is around the
    function may read them again.

    Args:
        function: the function.
        steps: how it is evaluated, in order.
    """
    views, made = Views(function), {value for step in steps for value in _made(step)}
    read = [{views.shown(value) for value in _read(step)} & made for step in steps]
    returned = {views.shown(atom) for atom in function.outputs if isinstance(atom, int)}
    readers = _bits_of(read)
    unread: dict[Group, Collection[int]] = {}
    for step, values, before in zip(steps, read, _before(steps, read), strict=True):
        if isinstance(step, Group):
            unread[step] = frozenset(value for value in values - returned if not readers[value] & ~before)
    return unread


def _bits_of(sets: Sequence[Collection[int]]) -> dict[int, int]:
    """Returns for each value the sets that have it: bit n for the nth."""
    bits: dict[int, int] = {}
    for at, values in enumerate(sets):
        for value in values:
            bits[value] = bits.get(value, 0) | 1 << at
    return bits


def _before(steps: Sequence[Step], read: Sequence[Collection[int]]) -> Iterator[int]:
    """Yields for each step itself and those that it depends on: bit n for the nth."""
    before: dict[int, int] = {}  # of each value
    for at, (step, values) in enumerate(zip(steps, read, strict=True)):
        own = functools.reduce(operator.or_, (before[value] for value in values), 1 << at)
        before |= dict.fromkeys(_made(step), own)
        yield own


def _made(step: Step) -> tuple[int, ...]:
    return (*step.outputs, *step.sums) if isinstance(step, Group) else step.outputs


def _read(step: Step) -> Iterator[int]:
    if not isinstance(step, Group):
        yield from step.values
        return
    own = {value for equation in step.equations for value in equation.outputs}
    for operands in step.operands:
        yield from (each.value for each in operands if isinstance(each, Operand) and each.value not in own)
