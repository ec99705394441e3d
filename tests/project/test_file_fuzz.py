"""Damaged files of every format: no crash, no wrong result, no code run. `tests.helpers.file_fuzz` tries more."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.file_formats import FORMATS
from tests.helpers.file_fuzz import GOOD, fuzz
from tests.helpers.file_mutations import MUTATIONS, Mutation

CASES = {"cache": 15, "keras": 12, "keras.assets": 12}


SLOW = frozenset(["about", "arrays.forged", "executable.functions", "report.forged"])
"""Formats of which a sibling is tried always; each needs a process of its own."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in FORMATS]
)
def test_damaged_files(name: str) -> None:
    counts = fuzz(name, CASES.get(name, 60))
    assert sum(counts.values()) == CASES.get(name, 60)
    assert not set(counts) - set(GOOD), counts
    assert counts["refused"] or name == "cache"


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_mutations_change_what_they_damage(mutation: Mutation) -> None:
    generator = np.random.default_rng(0)
    data, other = b"length=123 " + generator.bytes(500), b"length=456 " + generator.bytes(500)
    changed = [mutation(data, other, generator) for _ in range(20)]
    assert sum(one != data for one in changed) >= 18


@pytest.mark.parametrize("bad", [pytest.param("crash", marks=pytest.mark.slow), "code", "wrong", "unexpected"])
def test_what_is_bad_is_noticed(bad: str) -> None:
    counts = fuzz(bad, 12, formats="tests.helpers.bad_formats")
    assert sum(counts.values()) == 12
    assert counts[bad] >= 2
    assert set(counts) <= {bad, *GOOD}
