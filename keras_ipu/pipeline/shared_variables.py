"""Layer calls that share variables: which they are, and the order in which they come close together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from keras_ipu.pipeline.stage_plan import LayerCall


def variables_of(layer: Any) -> frozenset[int]:
    """The variables of a layer, by `id`; none for an operation that is no layer."""
    return frozenset(id(variable) for variable in getattr(layer, "weights", ()))


def early_order(calls: Sequence[LayerCall]) -> list[int]:
    """Orders calls so that those that share variables with an earlier one follow it, where they can.

    A call can if nothing that it depends on, after the earlier one, has variables: the embedding of a decoder's tokens,
    of the table that the encoder uses, moves up to the encoder's; a language model's head does not.

    Args:
        calls: in an order in which they can run.

    Returns:
        The places of the calls, in the new order, in which they can run too.
    """
    variables = [variables_of(call.layer) for call in calls]
    makers = {number: place for place, call in enumerate(calls) for number in call.outputs}
    needs = [sorted({makers[number] for number in call.inputs.values() if number in makers}) for call in calls]
    order: list[int] = []
    for place, used in enumerate(variables):
        if place not in order:
            order.append(place)
        for later in range(place + 1, len(calls)) if used else ():
            if later not in order and not used.isdisjoint(variables[later]):
                missing = _missing(later, needs, order)
                if not any(variables[each] for each in missing[:-1]):
                    order += missing
    return order


def _missing(place: int, needs: Sequence[Sequence[int]], there: Sequence[int]) -> list[int]:
    """The calls that one depends on, itself last, less those that are there, in an order in which they can run."""
    found: set[int] = set()
    todo = [place]
    while todo:
        each = todo.pop()
        if each not in found and each not in there:
            found.add(each)
            todo += needs[each]
    return sorted(found)


def sharing_places(variables: Sequence[frozenset[int]]) -> Iterator[tuple[int, int]]:
    """Finds where a model's end begins and its beginning ends if both are to hold all calls that share variables.

    Args:
        variables: of each call, in order.

    Yields:
        The place of the first call of the end, and that of the first call after the beginning. No call between them
        uses a variable that either has.
    """
    for start in range(len(variables) - 1, 0, -1):
        before = frozenset().union(*variables[:start])
        if variables[start].isdisjoint(before):
            continue
        first_end = _closed_end(variables, start)
        if first_end < start:
            yield start, first_end


def _closed_end(variables: Sequence[frozenset[int]], start: int) -> int:
    """Returns where the beginning ends that has every call before `start` of what it and the end use."""
    used, end = frozenset().union(*variables[start:]), 0
    while True:
        reached = max((place + 1 for place in range(start) if not used.isdisjoint(variables[place])), default=end)
        if reached <= end:
            return end
        used, end = used.union(*variables[end:reached]), reached
