"""Generates synthetic data in place of transfers between host and device (`--use_synthetic_data`).

It is set by category in TF_POPLAR_FLAGS. `ipu_tf._config` parses the flags and calls `use`.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.program.program import Program

Initializer = int | Literal["uniform", "normal"]

_SEED = 5489  # any fixed number: synthetic data is the same in every process


class TransferKind(enum.Enum):
    """Categories of data that moves between host and device."""

    SEED = "seed"
    INFEED = "infeed"
    OUTFEED = "outfeed"
    HOST_EMBEDDING = "hostembedding"
    PARAMETERS = "parameters"


@dataclasses.dataclass(frozen=True)
class SyntheticData:
    """Settings of synthetic data.

    Attributes:
        categories: for which kinds of data.
        initializer: values of synthetic tensors: a whole number everywhere, or random numbers, `uniform` over all
            values of an integer and all positive values of a floating-point number, or `normal`, which gives whole
            numbers the value 1.
        null_feed: whether elements of infeeds are zeros.
    """

    categories: frozenset[TransferKind] = frozenset()
    initializer: Initializer = 0
    null_feed: bool = False

    def uses(self, category: TransferKind) -> bool:
        """Returns whether data of this category is synthetic."""
        return category in self.categories

    @property
    def feeds(self) -> bool:
        """Returns whether elements of infeeds are synthetic."""
        return self.null_feed or self.uses(TransferKind.INFEED)


_settings = register_state("synthetic data", ProcessValue(SyntheticData()))


def use(data: SyntheticData) -> None:
    """Sets which data is synthetic."""
    _settings.value = data


def current() -> SyntheticData:
    """Returns the settings of synthetic data."""
    return _settings.value


def uses(category: TransferKind) -> bool:
    """Returns whether data of this category is synthetic, by the current settings."""
    return _settings.value.uses(category)


def infeed_elements(types: Sequence[jax.ShapeDtypeStruct], data: SyntheticData) -> Iterator[tuple[np.ndarray, ...]]:
    """Yields elements of a synthetic infeed: always the same, without end."""
    element = _element(tuple(types), data)
    while True:
        yield element


def infeed_element(instead_of: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Returns the element that replaces an infeed's own, if infeeds are synthetic."""
    return _element(tuple(jax.ShapeDtypeStruct(array.shape, array.dtype) for array in instead_of), _settings.value)


@functools.lru_cache(maxsize=8)
def _element(types: tuple[jax.ShapeDtypeStruct, ...], data: SyntheticData) -> tuple[np.ndarray, ...]:
    return arrays(types, data.initializer if data.uses(TransferKind.INFEED) else 0)


def seed() -> np.ndarray | None:
    """Returns the synthetic seed of every execution, `uint32[2]`; None where seeds come from the host."""
    if not _settings.value.uses(TransferKind.SEED):
        return None
    return arrays([jax.ShapeDtypeStruct((2,), np.dtype(np.uint32))], _settings.value.initializer)[0]


def parameters(given: Sequence[Any], program: Program) -> tuple[Any, ...]:
    """Returns synthetic parameters of an execution; its control parameters are kept."""
    data = program.parameters[program.controls :]
    return (*given[: program.controls], *arrays(data, _settings.value.initializer))


def results(computed: Sequence[Any], given: Sequence[Any], aliases: Mapping[int, int]) -> tuple[Any, ...]:
    """Returns placeholder results of an execution with synthetic parameters.

    Args:
        computed: the execution's results.
        given: the host's parameters.
        aliases: result index -> parameter index, where a result is the new value of a piece of state.

    Returns:
        Zeros, and for a piece of state the host's value.
    """
    return tuple(
        given[aliases[index]] if index in aliases else np.zeros(result.shape, result.dtype)
        for index, result in enumerate(computed)
    )


def arrays(types: Sequence[jax.ShapeDtypeStruct], initializer: Initializer) -> tuple[np.ndarray, ...]:
    """Generates arrays of the given shapes and dtypes, the same in every process.

    Example:
        >>> arrays([jax.ShapeDtypeStruct((2,), np.dtype(np.int32))], 7)[0].tolist()
        [7, 7]
    """
    generator = np.random.default_rng(_SEED)
    return tuple(_array(wanted, initializer, generator) for wanted in types)


def _array(wanted: jax.ShapeDtypeStruct, initializer: Initializer, generator: np.random.Generator) -> np.ndarray:
    shape, dtype = wanted.shape, np.dtype(wanted.dtype)
    whole = dtype.kind in "iub"
    if initializer == "normal":
        return np.ones(shape, dtype) if whole else generator.standard_normal(shape).astype(dtype)
    if initializer == "uniform":
        return _uniform(shape, dtype, generator)
    # As in C, a number that the dtype does not have wraps around.
    return np.full(shape, initializer != 0 if dtype.kind == "b" else _wrapped(initializer, dtype), dtype)


def _wrapped(number: int, dtype: np.dtype) -> int:
    if dtype.kind not in "iu":
        return number
    bits = 8 * dtype.itemsize
    number %= 1 << bits
    return number - (1 << bits) if dtype.kind == "i" and number >= 1 << (bits - 1) else number


def _uniform(shape: tuple[int, ...], dtype: np.dtype, generator: np.random.Generator) -> np.ndarray:
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    floats = jax.numpy.finfo(dtype)
    low, high = float(floats.tiny), float(floats.max)
    return (low + generator.random(shape) * (high - low)).astype(dtype)
