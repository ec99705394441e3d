"""Ranges of integers: what StableHLO ops make of their operands' ranges."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

Range = tuple[int, int]
"""The least and the greatest integer, both inclusive."""
Ranges = Sequence[Range | None]


def joined(ranges: Ranges) -> Range | None:
    """Returns the range that has all of some ranges in it; None if one is unknown."""
    known = [each for each in ranges if each is not None]
    if len(known) != len(ranges) or not known:
        return None
    return min(least for least, _ in known), max(most for _, most in known)


def limits(dtype: np.dtype) -> Range:
    """Returns the range of a dtype."""
    if dtype.kind == "b":
        return (0, 1)
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def fits(found: Range, dtype: np.dtype) -> bool:
    """Returns whether a dtype holds all integers of a range."""
    least, most = limits(dtype)
    return least <= found[0] and found[1] <= most


def _first(ranges: Ranges) -> Range | None:
    return ranges[0]


def _all_known(compute: Callable[..., Range | None]) -> Callable[[Ranges], Range | None]:
    """Returns a function of ranges that is unknown where one of them is."""
    return lambda ranges: None if None in ranges else compute(*ranges)


def _multiplied(left: Range, right: Range) -> Range:
    products = [a * b for a, b in itertools.product(left, right)]
    return min(products), max(products)


def _divided(left: Range, right: Range) -> Range | None:
    if left[0] < 0 or right[0] <= 0:
        return None
    return left[0] // right[1], left[1] // right[0]


def _remainder(left: Range, right: Range) -> Range | None:
    return (0, min(left[1], right[1] - 1)) if left[0] >= 0 and right[0] > 0 else None


def _smaller(left: Range, right: Range) -> Range:
    return min(left[0], right[0]), min(left[1], right[1])


def _greater(left: Range, right: Range) -> Range:
    return max(left[0], right[0]), max(left[1], right[1])


def _clamped(least: Range, value: Range, most: Range) -> Range:
    return _smaller(_greater(least, value), most)


_SHAPES = ("reshape", "broadcast_in_dim", "slice", "transpose", "reverse", "dynamic_slice", "gather", "convert")

TRANSFERS: dict[str, Callable[[Ranges], Range | None]] = {
    **dict.fromkeys((f"stablehlo.{name}" for name in _SHAPES), _first),
    "mhlo.copy": _first,
    "stablehlo.concatenate": joined,
    "stablehlo.pad": joined,
    "stablehlo.dynamic_update_slice": lambda ranges: joined(ranges[:2]),
    "stablehlo.select": lambda ranges: joined(ranges[1:]),
    "stablehlo.add": _all_known(lambda left, right: (left[0] + right[0], left[1] + right[1])),
    "stablehlo.subtract": _all_known(lambda left, right: (left[0] - right[1], left[1] - right[0])),
    "stablehlo.multiply": _all_known(_multiplied),
    "stablehlo.negate": _all_known(lambda value: (-value[1], -value[0])),
    "stablehlo.divide": _all_known(_divided),
    "stablehlo.remainder": _all_known(_remainder),
    "stablehlo.minimum": _all_known(_smaller),
    "stablehlo.maximum": _all_known(_greater),
    "stablehlo.clamp": _all_known(_clamped),
}
"""The range of the result of an op, by its name, from the ranges of its operands."""
