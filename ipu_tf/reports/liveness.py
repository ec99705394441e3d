"""Liveness of a part's values: which are alive at each operation, how many bytes of each category.

A value is alive from the operation that makes it to the last that reads it. Inputs that the caller keeps, and results,
are alive to the end. Each value has a buffer of its own: XLA may need less, as it fuses operations and reuses buffers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ipu_tf.device.convolution.recorded import Recorded
from ipu_tf.reports.flops import equation_flops
from ipu_tf.reports.layers import is_backward
from ipu_tf.reports.operations import Buffer, Listed, Listing, bytes_of_type
from ipu_tf.reports.part import Category, Operation, Part, Value


@dataclasses.dataclass(frozen=True)
class Input:
    """Value that is there before a part runs.

    Attributes:
        name: which parameter, queue or hidden state.
        category: what it is to the program.
        bytes: its size on one replica.
        kept: whether it stays to the end of the part, read or not.
    """

    name: str
    category: Category
    bytes: int
    kept: bool = False


def part_of(
    kind: str,
    jaxpr: Any,
    inputs: Sequence[Input],
    results: Sequence[Category],
    planned: Recorded = MappingProxyType({}),
    replaced: Mapping[int, str] = MappingProxyType({}),
) -> Part:
    """Returns the operations and values of a part.

    Args:
        kind: of the part.
        jaxpr: what one run of it, or one iteration, computes.
        inputs: its inputs, then values that it does not read and that others keep meanwhile.
        results: category of each result.
        planned: its convolutions by their name scopes.
        replaced: names of the variables whose new values are results, by the place of the result.
    """
    listing = Listing(jaxpr, [Buffer(each.name, each.bytes) for each in inputs])
    categories = {place: each.category for place, each in enumerate(inputs)}
    categories |= dict.fromkeys(listing.constants, Category.READ)
    computed = [each for each, atom in enumerate(jaxpr.outvars) if not hasattr(atom, "val")]
    for place, result in zip(listing.outputs, computed, strict=True):
        if place not in categories and result in replaced:
            listing.buffers[place].name = replaced[result]
        categories.setdefault(place, results[result])
    for place in _stashed(listing):
        categories.setdefault(place, Category.STASHES)
    kept = [place for place, each in enumerate(inputs) if each.kept]
    values = _values(listing, categories, kept, len(inputs))
    return Part(kind, tuple(_Operations(planned).of(listing.operations, values)), tuple(values))


def _stashed(listing: Listing) -> set[int]:
    """Returns the places of values that forward passes make and gradients read."""
    made = {place for each in listing.operations if not is_backward(each.name) for place in each.makes}
    return made & {place for each in listing.operations if is_backward(each.name) for place in each.reads}


def _values(listing: Listing, categories: dict[int, Category], kept: Sequence[int], inputs: int) -> list[Value]:
    end = max(len(listing.operations) - 1, 0)
    first, last = dict.fromkeys(range(inputs), 0), dict.fromkeys(range(inputs), 0)
    for index, operation in enumerate(listing.operations):
        for place in operation.makes:
            first[place] = last[place] = index
        last.update(dict.fromkeys(operation.reads, index))
    last.update(dict.fromkeys((*listing.outputs, *listing.constants, *kept), end))
    return [
        Value(each.name, categories.get(place, Category.TEMPORARIES), each.bytes, first.get(place, 0), last[place])
        for place, each in enumerate(listing.buffers)
    ]


class _Operations:
    """Makes operations of those that are listed.

    Args:
        planned: convolutions by their name scopes.
    """

    def __init__(self, planned: Recorded) -> None:
        self._planned = planned

    def of(self, listed: Sequence[Listed], values: Sequence[Value]) -> Iterator[Operation]:
        """Yields the operations with what is alive while they run."""
        begin: list[list[Value]] = [[] for _ in range(len(listed) + 1)]
        end: list[list[Value]] = [[] for _ in range(len(listed) + 1)]
        for value in values:
            begin[value.first].append(value)
            end[value.last].append(value)
        live = dict.fromkeys(Category, 0)
        for index, operation in enumerate(listed):
            for value in begin[index]:
                live[value.category] += value.bytes
            yield self._operation(operation, live, values)
            for value in end[index]:
                live[value.category] -= value.bytes

    def _operation(self, operation: Listed, live: dict[Category, int], values: Sequence[Value]) -> Operation:
        trips, bodies = self._bodies(operation)
        body = max(bodies, key=_peak, default=())
        inside = _peak(body)
        accessed = sum(values[place].bytes for place in (*operation.reads, *operation.makes))
        if bodies:
            accessed = (1 if trips is None else trips) * sum(each.bytes_accessed for each in body)
        return Operation(
            name=operation.name,
            live={**live, Category.TEMPORARIES: live[Category.TEMPORARIES] + inside},
            inside=inside,
            trips=trips,
            body=body,
            branches=bodies if len(bodies) > 1 else (),
            flops=equation_flops(operation.equation, self._planned, operation.trips),
            bytes_accessed=accessed,
        )

    def _bodies(self, operation: Listed) -> tuple[int | None, tuple[tuple[Operation, ...], ...]]:
        """Returns how often a loop runs, where that is known, and the operations of its body, or of each branch."""
        name, params = operation.equation.primitive.name, operation.equation.params
        if name == "while":
            return operation.trips, (self._inside(params["body_jaxpr"].jaxpr),)
        if name == "scan":  # a slice of what is scanned over is made for each iteration
            held = params["num_consts"] + params["num_carry"]
            return int(params["length"]), (self._inside(params["jaxpr"].jaxpr, held),)
        if name == "cond":
            return None, tuple(self._inside(branch.jaxpr) for branch in params["branches"])
        return None, ()

    def _inside(self, jaxpr: Any, held: int | None = None) -> tuple[Operation, ...]:
        """Returns the operations of a body; its first `held` inputs, all by default, count outside of it."""
        inputs = len(jaxpr.invars)
        held = inputs if held is None else held
        sizes = [0 if place < held else bytes_of_type(variable.aval) for place, variable in enumerate(jaxpr.invars)]
        listing = Listing(jaxpr, [Buffer("input", size) for size in sizes])
        return tuple(self.of(listing.operations, _values(listing, {}, (), inputs)))


def _peak(operations: Sequence[Operation]) -> int:
    return max((each.total for each in operations), default=0)
