"""A fuzzed program: inputs, computation, and the check of its result."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.xla_fuzz.bounds import Bounded, Chosen, exactly
from tests.xla_fuzz.ops import Ops
from tests.xla_fuzz.reference import Reference


@dataclasses.dataclass(frozen=True)
class Case:
    """A program of one result.

    Attributes:
        text: what it computes, to be read in reports.
        inputs: arrays of one dtype; those of dtype int32 beside others are indices.
        program: `(ops, inputs) -> result`.
    """

    text: str
    inputs: tuple[np.ndarray, ...]
    program: Callable[[Ops, Any], Any]

    @property
    def dtype(self) -> np.dtype:
        """Of what is computed."""
        return self.inputs[0].dtype

    @property
    def elements(self) -> int:
        """Of the largest input."""
        return max(array.size for array in self.inputs)

    def fault(self, found: np.ndarray) -> str | None:
        """Returns the fault of a result; None if it is within its bound."""
        with np.errstate(all="ignore"):
            wanted = self.program(Reference(self.dtype), [exactly(array) for array in self.inputs])
            excess = _excess(wanted, found)
        wrong = ~(excess <= 0)  # NaN is wrong
        if not wrong.any():
            return None
        worst = np.unravel_index(int(np.argmax(np.where(wrong, np.nan_to_num(excess, nan=np.inf), 0))), wrong.shape)
        count = f"{wrong.sum()} of {wrong.size} values are wrong"
        return f"{self.text}: {count}, the worst at {_at(worst)}: {_told(wanted, found, worst)}"


def _excess(wanted: Bounded | Chosen, found: np.ndarray) -> np.ndarray:
    if isinstance(wanted, Chosen):
        return wanted.excess(found)
    assert found.shape == wanted.value.shape, (found.shape, wanted.value.shape)
    return np.asarray(np.abs(found - wanted.value) - wanted.error)


def _at(place: tuple[Any, ...]) -> list[int]:
    return [int(index) for index in place]


def _told(wanted: Bounded | Chosen, found: np.ndarray, place: tuple[Any, ...]) -> str:
    if isinstance(wanted, Chosen):
        return "not the largest"
    return f"wanted {wanted.value[place]!r} within {wanted.error[place]:.1e}. Received: {found[place]!r}."
