"""Data that end earlier in one instance are an error in all; a warning of the same data is given where they are."""

from __future__ import annotations

import pytest

from tests.helpers.instances import run_instances

WANTED = {
    "known": ("the same number of steps in an epoch in all 2 instances", "20 in instance 0, 16 in instance 1"),
    "unknown": ("the same number of elements", "instance 0 has 20, instance 1 has only 16, which is their end"),
    "one step": ("the same number of elements", "instance 0 has 17, instance 1 has only 16, which is their end"),
    "validation": ("the same number of steps in an epoch", "20 in instance 0, 16 in instance 1"),
    "eager in one": ("the same `run_eagerly`", "0 in instance 0, 1 in instance 1"),
    "eager": ("the same number of batches", "instance 0 has 3 or more, instance 1 has 2"),
    "queue": ("the same number of elements", "instance 0 has 20, instance 1 has only 16, which is their end"),
}
SAME = ("same", "same arrays", "same, eager")
OTHERS = ("as many", "zeros", "late", "other")


@pytest.fixture(scope="module")
def told() -> list[dict[str, str]]:
    """What each instance raised or logged, by case."""
    names = [*WANTED, *SAME, *OTHERS]
    program = f"import sys; sys.argv[1:] = {names!r}\nfrom tests.helpers.instances_data import main; main()"
    found = []
    for done in run_instances(program, timeout=280, IPU_TF_INSTANCE_TIMEOUT="60"):
        assert done.returncode == 0, done.stderr
        lines = [line.partition(": ") for line in done.stdout.splitlines() if line.partition(": ")[0] in names]
        found.append({name: text for name, _, text in lines})
        assert sorted(found[-1]) == sorted(names), done.stderr
    return found


@pytest.mark.parametrize("case", WANTED)
def test_unequal_data_are_an_error_in_all_instances(told: list[dict[str, str]], case: str) -> None:
    for each in told:
        assert all(text in each[case] for text in WANTED[case]), each[case]


@pytest.mark.parametrize("case", SAME)
def test_the_same_data_are_told_by_one(told: list[dict[str, str]], case: str) -> None:
    assert "instances 0, 1 train on the same data" in told[0][case]
    assert told[1][case] == ""


@pytest.mark.parametrize("case", OTHERS)
def test_other_data_and_what_says_nothing_are_not_told(told: list[dict[str, str]], case: str) -> None:
    assert [each[case] for each in told] == ["", ""]
