"""List of the programs that a campaign runs."""

from __future__ import annotations

import dataclasses

from tests.xla_fuzz.cases import Case
from tests.xla_fuzz.families import Maker
from tests.xla_fuzz.known import KNOWN

WAYS = ("tensorflow straight", "tensorflow loop", "jax loop")
"""Front ends, and whether a program is a device loop."""
TOGETHER = 12
"""Random cases in one program."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A program, and how it is run.

    Attributes:
        way: one of `WAYS`.
        known: the number of its only case among `KNOWN`; None for random ones.
        numbers: of its random cases.
    """

    way: str
    known: int | None
    numbers: tuple[int, ...] = ()

    def cases(self, seed: int) -> list[Case]:
        """Returns the program's results."""
        if self.known is not None:
            return [KNOWN[self.known]]
        return [Maker(seed, number).make() for number in self.numbers]

    def __str__(self) -> str:
        what = f"random cases {list(self.numbers)}" if self.known is None else KNOWN[self.known].text
        return f"{self.way}: {what}"


@dataclasses.dataclass(frozen=True)
class Campaign:
    """Program to run.

    Attributes:
        cases: how many random cases.
        seed: of their random numbers.
        known: numbers of the cases of `KNOWN` that come first.
    """

    cases: int
    seed: int = 0
    known: tuple[int, ...] = tuple(range(len(KNOWN)))

    def jobs(self) -> list[Job]:
        """Each known case in all ways, then random ones, whose programs take the ways in turn."""
        made = [Job(way, number) for number in self.known for way in WAYS]
        for turn, first in enumerate(range(0, self.cases, TOGETHER)):
            numbers = tuple(range(first, min(first + TOGETHER, self.cases)))
            made.append(Job(WAYS[turn % len(WAYS)], None, numbers))
        return made
