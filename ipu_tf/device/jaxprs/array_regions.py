"""Finds which regions of an argument a traced function slices, and of which parts it stacks a value like it."""

from __future__ import annotations

import dataclasses
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
    """Regions of an argument that a function's values show.

    Args:
        function: the function.
        argument: number of the argument, an array that is not empty.
    """

    def __init__(self, function: FlatFunction, argument: int) -> None:
        self._function, self._types = function, function.types
        self._made_by = {number: each for each in function.equations for number in each.outputs}
        shape = tuple(self._types[argument].shape)
        self._whole = Region((0,) * len(shape), shape)
        self._shown: dict[int, Region] = {argument: self._whole}
        for equation in function.equations:
            self._find(equation)

    def showing(self, region: Region) -> Iterator[int]:
        """Yields the values that are a region of the argument."""
        return (value for value, shown in self._shown.items() if shown == region)

    def stacked(self, result: int) -> dict[Region, Atom]:
        """Returns the parts, by region, that a result of the argument's shape is stacked of; itself, if of none."""
        return dict(self._parts(result, self._whole))

    def _parts(self, value: Atom, region: Region) -> Iterator[tuple[Region, Atom]]:
        made = self._made_by.get(value) if isinstance(value, int) else None
        if made is not None and made.name in JOINS:
            yield from self._joined(made, region)
        elif made is not None and self._keeps_elements(made):
            yield from self._parts(made.inputs[0], region)
        else:
            yield region, value

    def _joined(self, made: Equation, region: Region) -> Iterator[tuple[Region, Atom]]:
        stacked = made.name == "stack"
        along = made.eqn.params["axis" if stacked else "dimension"]
        axis, start = region.axes(self._types[made.outputs[0]].shape)[along], 0
        for part in made.inputs:
            size = 1 if stacked else _shape(part, self._function)[along]
            yield from self._parts(part, region.within(axis, start, size))
            start += size

    def _find(self, made: Equation) -> None:
        """Notes which region an equation's value is."""
        region = self._shown.get(made.values[0]) if made.values and made.values[0] == made.inputs[0] else None
        if region is None:
            return
        if made.name == "slice":
            region = self._sliced(made, region)
        elif not self._keeps_elements(made):
            return
        if region is not None:
            self._shown[made.outputs[0]] = region

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
