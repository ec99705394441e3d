"""Finds which regions of an argument a traced function slices, and of which parts it stacks a result."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from jax.extend import core

from ipu_tf.device.jaxprs.flat_equations import Atom, Equation, FlatFunction

JOINS = ("concatenate", "stack")
RESHAPES = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim")
"""Primitives that may leave the elements and their order, and only add or remove axes of one element."""


@dataclasses.dataclass(frozen=True)
class Region:
    """Region of an array. A value shows it if it has the region's axes of more than one element, in their order.

    Attributes:
        starts: its first element along each axis of the array.
        sizes: its number of elements along each axis.
    """

    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def limits(self) -> tuple[int, ...]:
        """The elements after its last along each axis."""
        return tuple(start + size for start, size in zip(self.starts, self.sizes, strict=True))

    def axes(self, shape: Sequence[int]) -> list[int | None]:
        """Returns the array's axis for each axis of a value that shows it; None for those of one element."""
        long = (axis for axis, size in enumerate(self.sizes) if size > 1)
        return [next(long) if size > 1 else None for size in shape]

    def within(self, axis: int | None, start: int, size: int) -> Region:
        """Returns the region of `size` elements along an axis, from the element `start` of this one."""
        if axis is None:
            return self
        starts, sizes = list(self.starts), list(self.sizes)
        starts[axis], sizes[axis] = starts[axis] + start, size
        return Region(tuple(starts), tuple(sizes))


class ArrayRegions:
    """Regions of arrays that a function's values show.

    Args:
        function: the function.
    """

    def __init__(self, function: FlatFunction) -> None:
        self._function, self._types = function, function.types
        self._users: dict[int, list[Equation]] = defaultdict(list)
        for each in function.equations:
            if each.inputs and isinstance(each.inputs[0], int):
                self._users[each.inputs[0]].append(each)

    def shown(self, argument: int) -> dict[int, Region]:
        """Returns the values that are a region of an argument, an array that is not empty, and which."""
        found = {argument: self._whole(argument)}
        waiting = [argument]
        while waiting:
            value = waiting.pop()
            for made in self._users[value]:
                region = self._region(made, found[value])
                if region is not None:
                    found[made.outputs[0]] = region
                    waiting.append(made.outputs[0])
        return found

    def stacked(self, result: int) -> dict[Region, Atom]:
        """Returns the parts, by region, that a result is stacked of; itself, if of none."""
        return dict(self._parts(result, self._whole(result)))

    def _whole(self, array: int) -> Region:
        shape = tuple(self._types[array].shape)
        return Region((0,) * len(shape), shape)

    def _parts(self, value: Atom, region: Region) -> Iterator[tuple[Region, Atom]]:
        made = self._function.made_by.get(value) if isinstance(value, int) else None
        if made is not None and made.name in JOINS and not self._joins_nothing(made):
            yield from self._joined(made, region)
        elif made is not None and self._keeps_elements(made):
            yield from self._parts(made.inputs[0], region)
        else:
            yield region, value

    def _joins_nothing(self, made: Equation) -> bool:
        """Returns whether a part is empty: it is no region, since its axis may be one of one element."""
        return any(0 in _shape(part, self._function) for part in made.inputs)

    def _joined(self, made: Equation, region: Region) -> Iterator[tuple[Region, Atom]]:
        stacked = made.name == "stack"
        along = made.eqn.params["axis" if stacked else "dimension"]
        axis, start = region.axes(self._types[made.outputs[0]].shape)[along], 0
        for part in made.inputs:
            size = 1 if stacked else _shape(part, self._function)[along]
            yield from self._parts(part, region.within(axis, start, size))
            start += size

    def _region(self, made: Equation, region: Region) -> Region | None:
        """Returns which region an equation's value is, whose operand is one; None if it is none."""
        if made.name == "slice":
            return self._sliced(made, region)
        return region if self._keeps_elements(made) else None

    def _sliced(self, made: Equation, region: Region) -> Region | None:
        given, shape = made.eqn.params, _shape(made.inputs[0], self._function)
        if 0 in self._types[made.outputs[0]].shape or set(given["strides"] or (1,)) != {1}:
            return None
        bounds = zip(given["start_indices"], given["limit_indices"], strict=True)
        for axis, (start, limit) in zip(region.axes(shape), bounds, strict=True):
            region = region.within(axis, start, limit - start)
        return region

    def _keeps_elements(self, made: Equation) -> bool:
        """Returns whether an equation only adds or removes axes of one element."""
        if made.name not in RESHAPES or len(made.inputs) != 1:
            return False
        if made.name == "reshape" and made.eqn.params["dimensions"] is not None:
            return False  # of the transposed operand
        return _long(_shape(made.inputs[0], self._function)) == _long(self._types[made.outputs[0]].shape)


def _long(shape: Sequence[int]) -> list[int]:
    return [size for size in shape if size != 1]


def _shape(atom: Atom, function: FlatFunction) -> tuple[int, ...]:
    kind: Any = atom.aval if isinstance(atom, core.Literal) else function.types[atom]
    return tuple(kind.shape)
