"""Replicas of several instances compute what as many replicas of one process do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ipu_tf.config import EmulationWarning, reset_ipu_configuration
from tests.helpers.instances import run_instances
from tests.helpers.instances_fits import NAMED, results

REPLICAS = 4
MOVING_STATISTICS = ("4", "5")
"""Places of batch normalisation's moving statistics, of which each replica has its own."""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One process with all replicas, as `poprun --num-instances 1` starts it."""
    for name in [name for name in os.environ if name.startswith(("POPDIST_", "OMPI_", "SLURM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("POPDIST_NUM_TOTAL_REPLICAS", str(REPLICAS))
    yield monkeypatch
    reset_ipu_configuration()


def together(
    folder: Path, instances: int, ipus: int, *cases: str, timeout: float = 280, **surroundings: str
) -> dict[str, list[Any]]:
    """What each case gives in each instance."""
    program = f"from tests.helpers.instances_fits import main; main({str(folder)!r}, {list(cases)!r})"
    own = {"POPDIST_NUM_IPUS_PER_REPLICA": str(ipus), **surroundings}
    for done in run_instances(program, instances, REPLICAS, timeout, **own):
        assert done.returncode == 0, done.stderr
    return {case: [np.load(folder / f"{case} {index}.npz") for index in range(instances)] for case in cases}


def assert_same(found: Any, expected: dict[str, Any], first: bool) -> None:
    """Checks what an instance got: within 1e-5, the moving statistics those of its own first replica."""
    assert set(found.files) == set(expected)
    for name, value in expected.items():
        if first or name not in MOVING_STATISTICS:
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What two instances get, which run several cases one after the other."""
    return together(tmp_path_factory.mktemp("two"), 2, 1, "4 1", *NAMED)


def test_two_instances_train_as_one_process_does(two: dict[str, list[Any]], alone: pytest.MonkeyPatch) -> None:
    expected = results("4 1")
    for index, found in enumerate(two["4 1"]):
        assert_same(found, expected, index == 0)


def test_collectives_go_over_the_replicas_of_all_instances(
    two: dict[str, list[Any]], alone: pytest.MonkeyPatch
) -> None:
    expected = results("collectives")
    first, second = two["collectives"]
    assert (float(first["index"]), float(second["index"])) == (0, 2)
    own = np.arange(8)
    rows = np.stack([own - 3.0 * replica for replica in range(REPLICAS)])
    np.testing.assert_array_equal(second["sum"], rows.sum(0))
    np.testing.assert_array_equal(second["pairs"], rows[2:].sum(0))
    np.testing.assert_array_equal(second["gathered"], rows)
    np.testing.assert_array_equal(second["all to all"], rows[:, 4:6].ravel())
    np.testing.assert_array_equal(second["SQUARE_ADD"], (rows**2).sum(0)[4:6])
    assert int(second["loop"]) == REPLICAS
    assert_same(first, expected, first=True)


def test_variables_are_mirrored_or_reduced_where_they_are_read(two: dict[str, list[Any]]) -> None:
    for index, found in enumerate(two["variables"]):
        values = {name: float(found[name]) for name in set(found.files) - {"kinds", "place"}}
        assert values == {
            "mirrored": 1.0,  # instance 0's at first
            "result": index + 1.0,
            "summed": 6.0,  # 2 replicas in each instance
            "read": 2.5,  # 1 + 1 and 1 + 2
            "graph": 2.5,
            "saved": 2.5,
            "first": 11.0,
        }
        assert str(found["kinds"]) == "IPUMirroredVariable IPUSyncOnReadVariable ResourceVariable"
        assert str(found["place"]) == "/device:IPU:0"


def test_tables_on_the_host_and_norms_over_groups_are_those_of_one_process(
    two: dict[str, list[Any]], alone: pytest.MonkeyPatch
) -> None:
    with pytest.warns(EmulationWarning, match="distributed_batch_norm_replica_group_size = 4"):
        expected = results("embedding")
    assert_same(two["embedding"][0], expected, first=True)
    np.testing.assert_array_equal(two["embedding"][1]["table"], two["embedding"][0]["table"])
    np.testing.assert_allclose(two["embedding"][1]["normal"][1:], expected["normal"][1:], rtol=1e-5)


def test_rounding_that_is_alike_on_replicas_is_alike_in_instances(
    two: dict[str, list[Any]], alone: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = two["rounded"]
    for name in ("unseeded", "seeded"):
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
        assert len(np.unique(first[name])) > 1  # it did round stochastically
    np.testing.assert_array_equal(first["seeded"], results("rounded")["seeded"])
    for each in together(tmp_path, REPLICAS, 1, "rounded")["rounded"]:  # one replica in each instance
        np.testing.assert_array_equal(each["seeded"], first["seeded"])


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
@pytest.mark.parametrize("ipus", [1, 2])
def test_the_division_of_replicas_makes_no_difference(ipus: int, backend: str, tmp_path: Path) -> None:
    """Prints the largest differences: `pytest -m slow -s`."""
    cases, found = (f"1 {ipus}", f"4 {ipus}"), {}
    for instances in (1, 2, 4):
        folder = tmp_path / str(instances)
        folder.mkdir()
        found[instances] = together(folder, instances, ipus, *cases, timeout=900, KERAS_BACKEND=backend)
    for case in cases:
        one = dict(found[1][case][0])
        for instances in (2, 4):
            for index, each in enumerate(found[instances][case]):
                assert_same(each, one, index == 0)
            differences = [np.abs(found[instances][case][0][name] - value).max() for name, value in one.items()]
            print(f"{backend}, accumulation and stages {case}, {instances} instances: {max(differences):.1e}")
