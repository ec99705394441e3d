"""Every rule of the importer is exercised by a case that compares it with TensorFlow or NumPy."""

from __future__ import annotations

import importlib
from pathlib import Path

from ipu_tf.lowering.importer.rules import CUSTOM_CALLS, RULES
from tests.helpers.lowering_parity import Case, TextCase

#: Ops that tests of their own hold against something else, and why no table can.
ELSEWHERE = {
    "stablehlo.rng": "draws numbers of the device's own",
    "stablehlo.replica_id": "is another number on every replica",
}


def _tables() -> list[Case | TextCase]:
    found: list[Case | TextCase] = []
    for path in sorted(Path(__file__).parent.glob("test_rules_*.py")):
        module = importlib.import_module(f"tests.ipu_tf.lowering.rules.{path.stem}")
        found += [*getattr(module, "CASES", ()), *getattr(module, "TEXTS", ())]
    return found


def test_every_rule_is_exercised() -> None:
    exercised = {name for case in _tables() for name in case.ops}
    targets = {f"@{name}" for name in CUSTOM_CALLS if not name.startswith("ipu.")}
    assert set(RULES) - {"stablehlo.custom_call"} - set(ELSEWHERE) - exercised == set()
    assert targets - exercised == set()


def test_names_of_cases_are_unique_within_a_file() -> None:
    """Two cases of one name would be told apart by a number only."""
    for path in sorted(Path(__file__).parent.glob("test_rules_*.py")):
        module = importlib.import_module(f"tests.ipu_tf.lowering.rules.{path.stem}")
        names = [case.name for table in ("CASES", "TEXTS") for case in getattr(module, table, ())]
        repeated = {name for name in names if names.count(name) > 1}
        assert repeated == set(), path.stem
