"""Names of the arrays in an element of data, as `Model.fit` calls them: `x`, `y['label']`, `sample_weight`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ipu_tf.device.feeds.number_range import check_numbers

_ARGUMENTS = ("x", "y", "sample_weight")
_NARROW = {"int64": np.dtype(np.int32), "uint64": np.dtype(np.uint32)}


def feature_names(structure: Any) -> tuple[str, ...]:
    """The name of each leaf that is not None, in the order of `tf.nest.flatten`.

    Args:
        structure: an element: inputs, or a tuple of inputs, targets and weights; nested, `None`s allowed.

    >>> feature_names(({"id": 1, "age": 2}, None, 3))
    ("x['age']", "x['id']", 'sample_weight')
    """
    leaves = tf.nest.flatten(structure)
    numbered = tf.nest.pack_sequence_as(structure, list(range(len(leaves))))
    names = dict(_arguments(numbered))
    return tuple(names.get(i, f"tensor {i}") for i, leaf in enumerate(leaves) if leaf is not None)


def check_whole_numbers(structure: Any) -> None:
    """Checks that 64-bit integers in an element fit into 32 bits.

    Raises:
        NumberOutOfRange: for the first that is not.
    """
    leaves = [leaf for leaf in tf.nest.flatten(structure) if leaf is not None]
    for leaf, name in zip(leaves, feature_names(structure), strict=True):
        narrow = _NARROW.get(str(getattr(leaf, "dtype", "")))
        if narrow is not None:
            check_numbers(np.asarray(leaf), narrow, f"Feature {name}")


def _arguments(numbered: Any) -> Iterator[tuple[int, str]]:
    if isinstance(numbered, tuple) and not hasattr(numbered, "_fields") and len(numbered) <= len(_ARGUMENTS):
        for name, part in zip(_ARGUMENTS, numbered, strict=False):
            yield from _named(part, name)
    else:
        yield from _named(numbered, "x")


def _named(numbered: Any, name: str) -> Iterator[tuple[int, str]]:
    """The number of each leaf within a part of a structure, and its name."""
    if isinstance(numbered, int):
        yield numbered, name
    elif isinstance(numbered, Mapping):
        for key, part in numbered.items():
            yield from _named(part, f"{name}[{key!r}]")
    elif isinstance(numbered, (list, tuple)):
        for index, part in enumerate(numbered):
            yield from _named(part, f"{name}[{index}]")
