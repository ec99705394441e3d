"""`Op`: a read-only view of a StableHLO op, with types and attributes as Python and NumPy values."""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import ml_dtypes
import numpy as np

from ipu_tf.lowering.jax.jax_private import ir

ELEMENT_TYPES: dict[str, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "i1": np.dtype(np.bool_),
    "i4": np.dtype(ml_dtypes.int4),
    "ui4": np.dtype(ml_dtypes.uint4),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
}
"""StableHLO element types and their numpy dtypes."""


@functools.lru_cache(maxsize=4096)
def array_type(text: str) -> jax.ShapeDtypeStruct:
    """Parses a StableHLO tensor type such as `tensor<2x3xf32>` to shape and dtype."""
    match = re.fullmatch(r"tensor<((?:\d+x)*)([a-zA-Z][\w<>]*)>", text)
    if match is None or match.group(2) not in ELEMENT_TYPES:
        raise NotImplementedError(f"Wanted a tensor type of fixed shape and known dtype. Received: {text}.")
    shape = tuple(int(size) for size in match.group(1).split("x") if size)
    return jax.ShapeDtypeStruct(shape, ELEMENT_TYPES[match.group(2)])


def array_types(text: str) -> list[jax.ShapeDtypeStruct]:
    """Parses a StableHLO type to shapes and dtypes: one, or those of `tuple<tensor<2xf32>, tensor<i32>>`."""
    if not text.startswith("tuple<"):
        return [array_type(text)]
    return [array_type(item) for item in re.findall(r"tensor<(?:[^<>]|<[^<>]*>)*>", text)]


class Op:
    """StableHLO op: its name, types and attributes.

    Args:
        operation: the MLIR operation.

    Attributes:
        name: e.g. `stablehlo.add`.
        operation: the MLIR operation itself, for rules that need its regions.
    """

    __slots__ = ("name", "operation")

    def __init__(self, operation: Any) -> None:
        self.operation = operation
        self.name: str = operation.name

    @property
    def results(self) -> list[jax.ShapeDtypeStruct]:
        """Shape and dtype of every tensor result."""
        return [t for value in self.operation.results for t in array_types(str(value.type))]

    @property
    def result(self) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the first result."""
        return array_type(str(self.operation.results[0].type))

    @property
    def regions(self) -> list[Any]:
        """The first block of every region."""
        return [region.blocks[0] for region in self.operation.regions]

    @property
    def origin(self) -> str:
        """TensorFlow's name of the op, with its name scope, or `unknown`."""
        names = re.findall(r'"([^"]*)"', str(self.operation.location))
        return next((name for name in names if not name.endswith(".py")), "unknown")

    def has(self, key: str) -> bool:
        """Returns whether the op carries the attribute `key`."""
        return key in self.operation.attributes

    def attribute(self, key: str) -> Any:
        """Returns the MLIR attribute `key` as jaxlib's object."""
        return self.operation.attributes[key]

    def text(self, key: str) -> str:
        """Returns an attribute as text, e.g. `#stablehlo<comparison_direction LT>`."""
        return str(self.operation.attributes[key])

    def word(self, key: str) -> str:
        """Returns the word of an enum attribute, `LT` of `#stablehlo<comparison_direction LT>`, or of a string."""
        return self.text(key).strip('"').rstrip(">").split()[-1]

    def integer(self, key: str, default: int = 0) -> int:
        """Returns an integer attribute; `default` if the op does not have it."""
        return ir.IntegerAttr(self.operation.attributes[key]).value if self.has(key) else default

    def integers(self, key: str) -> tuple[int, ...]:
        """Returns an array of integers, e.g. `dimensions`; a dense tensor's values in row-major order."""
        if not self.has(key):
            return ()
        attribute = self.operation.attributes[key]
        if isinstance(attribute, ir.DenseIntElementsAttr):
            return tuple(int(value) for value in np.array(attribute).ravel())
        return tuple(int(value) for value in attribute)

    def booleans(self, key: str) -> tuple[bool, ...]:
        """Returns an array of booleans, e.g. `window_reversal`; empty if the op does not have it."""
        return tuple(bool(value) for value in self.operation.attributes[key]) if self.has(key) else ()

    def pairs(self, key: str) -> tuple[tuple[int, int], ...]:
        """Returns an n x 2 tensor of integers as pairs, e.g. `padding`; empty if the op does not have it."""
        flat = self.integers(key)
        return tuple(zip(flat[::2], flat[1::2], strict=True))
