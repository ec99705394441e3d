"""`ParityReport`: differences between a split and a plain training run, a verdict and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np


@dataclasses.dataclass(frozen=True)
class Difference:
    """Difference of one array between the split and the plain run.

    Attributes:
        name: of the variable, the log or the figure.
        shape: of the array.
        largest: the largest absolute value of the plain run's array.
        absolute: the largest absolute difference; NaN where one side alone is NaN or infinite.
        round_off: whether the array is a variable whose gradient is nothing but round-off, which adaptive optimizers
            magnify to anything, such as that of a bias in front of a batch normalization.
    """

    name: str
    shape: tuple[int, ...]
    largest: float
    absolute: float
    round_off: bool = False

    @property
    def relative(self) -> float:
        """The largest absolute difference, relative to the largest absolute value; 0 for equal arrays."""
        if self.absolute == 0:
            return 0.0
        return self.absolute / self.largest if self.largest else float("inf")

    def within(self, rtol: float, atol: float) -> bool:
        """Returns whether the difference is at most `atol + rtol * largest`."""
        return self.round_off or bool(self.absolute <= atol + rtol * self.largest)


@dataclasses.dataclass(frozen=True)
class ParityReport:
    """Result of `check_parity`.

    Attributes:
        split: how the model was split, in words.
        updates: how many weight updates ran.
        rtol: what differences were held against, relative to the largest value of an array.
        atol: what was added to that.
        variables: a difference for each of the model's weights, after the last update.
        logs: one for each log of the training step, such as the loss, over all steps and replicas.
        gradient_norm: that of the norm of the whole gradient, over all updates.
        notes: what the reader has to know to judge them.
    """

    split: str
    updates: int
    rtol: float
    atol: float
    variables: tuple[Difference, ...]
    logs: tuple[Difference, ...]
    gradient_norm: Difference
    notes: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[Difference, ...]:
        """All differences."""
        return (*self.variables, *self.logs, self.gradient_norm)

    @property
    def failures(self) -> tuple[Difference, ...]:
        """Differences that are larger than tolerated."""
        return tuple(each for each in self.differences if not each.within(self.rtol, self.atol))

    @property
    def passed(self) -> bool:
        """Returns whether all differences are tolerable."""
        return not self.failures

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        worst = max((each for each in self.differences if not each.round_off), key=_badness)
        by = f"the largest relative difference is {worst.relative:.1e}, of {worst.name}"
        if self.passed:
            return f"PARITY: {by}."
        return f"NO PARITY: {len(self.failures)} of {len(self.differences)} differ too much; {by}."

    def table(self) -> str:
        """The figures, one row for each array."""
        rows: list[tuple[str, ...]] = [("", "shape", "largest", "abs. diff.", "rel. diff.", "")]
        for kind, found in (("", self.variables), ("log ", self.logs), ("", (self.gradient_norm,))):
            rows += [self._row(kind, each) for each in found]
        widths = [max(len(row[column]) for row in rows) for column in range(6)]
        return "\n".join(_line(row, widths) for row in rows)

    def _row(self, kind: str, each: Difference) -> tuple[str, ...]:
        figures = (f"{each.largest:.3g}", f"{each.absolute:.1e}", f"{each.relative:.1e}")
        shape = "x".join(map(str, each.shape)) or "scalar"
        ok = "round-off" if each.round_off else "ok"
        return (kind + each.name, shape, *figures, ok if each.within(self.rtol, self.atol) else "DIFFERS")

    def __str__(self) -> str:
        title = f"{self.split}, against plain Keras: {self.updates} weight updates"
        limits = f"Tolerated: {self.rtol:.0e} of the largest value of an array, and {self.atol:.0e}."
        return "\n".join([title, "", self.table(), "", *(f"Note: {note}" for note in self.notes), limits, self.verdict])


def difference(name: str, found: np.ndarray, wanted: np.ndarray) -> Difference:
    """Returns the difference of `found` from `wanted`, an array of the same shape.

    Example:
        >>> difference("x", np.array([1.0, 2.5]), np.array([1.0, 2.0]))
        Difference(name='x', shape=(2,), largest=2.0, absolute=0.5, round_off=False)
    """
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        gaps = np.where((found == wanted) | (np.isnan(found) & np.isnan(wanted)), 0.0, np.abs(found - wanted))
    finite = np.abs(wanted[np.isfinite(wanted)])
    return Difference(name, wanted.shape, float(finite.max(initial=0.0)), float(gaps.max(initial=0.0)))


def differences(
    found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray], round_off: Collection[str] = ()
) -> tuple[Difference, ...]:
    """`difference` for each name, in the order of `wanted`; those in `round_off` are marked so."""
    compared = [difference(name, found[name], array) for name, array in wanted.items()]
    return tuple(dataclasses.replace(each, round_off=each.name in round_off) for each in compared)


def _badness(each: Difference) -> float:
    return float("inf") if np.isnan(each.relative) else each.relative


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:5], widths[1:5], strict=True))]
    return "  ".join([*cells, row[5]]).rstrip()
