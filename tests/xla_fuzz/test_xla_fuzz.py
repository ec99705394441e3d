"""XLA computes random programs as NumPy does, through the device; and the fuzz detects deliberate faults."""

from __future__ import annotations

import importlib.metadata

import numpy as np
import pytest

from tests.xla_fuzz.bounds import OutOfRange, exactly
from tests.xla_fuzz.campaign import run_campaign
from tests.xla_fuzz.cases import Case
from tests.xla_fuzz.families import Maker
from tests.xla_fuzz.jobs import Campaign
from tests.xla_fuzz.reference import Reference

#: What XLA:CPU does by default: every kind of fusion into YNNPACK.
AS_XLA_WOULD = {"XLA_FLAGS": "--xla_cpu_experimental_ynn_fusion_type=+INDIVIDUAL_DOT"}
FAULTY = pytest.mark.skipif(
    importlib.metadata.version("jaxlib") != "0.10.2", reason="the faults are those of jaxlib 0.10.2"
)


def test_programs_are_computed_as_numpy_does() -> None:
    report = run_campaign(Campaign(cases=36))
    assert not report.faults, "\n".join(report.faults)
    assert report.compared > 30
    assert sum(elements >= 2**14 for elements in report.elements) > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_many_programs_are_computed_as_numpy_does(seed: int) -> None:
    report = run_campaign(Campaign(cases=2000, seed=seed))
    assert not report.faults, "\n".join(report.faults)
    assert report.compared > 1800


@FAULTY
def test_without_the_options_wrong_values_are_found() -> None:
    report = run_campaign(Campaign(cases=0, known=(0,)), AS_XLA_WOULD)
    assert [fault.partition(":")[0] for fault in report.faults] == [
        "tensorflow straight",
        "tensorflow loop",
        "jax loop",
    ]
    assert all("1 of 32769 values are wrong, the worst at [32768]" in fault for fault in report.faults)


@FAULTY
@pytest.mark.slow
def test_without_the_options_programs_that_end_the_process_are_found() -> None:
    report = run_campaign(Campaign(cases=0, known=(2,)), AS_XLA_WOULD)
    assert len(report.faults) == 3
    assert all(fault.startswith(("ends the process", "hangs")) for fault in report.faults)


def sums(array: np.ndarray) -> Case:
    """A case that sums the rows."""
    return Case("sum", (array,), lambda ops, x: ops.sum(x[0], (0,)))


def test_a_missing_term_shows_among_whole_numbers() -> None:
    array = np.ones((2**18, 2), np.float32)
    assert sums(array).fault(np.array([2**18, 2**18], np.float32)) is None
    assert "1 of 2 values are wrong, the worst at [1]" in str(
        sums(array).fault(np.array([2**18, 2**18 - 1], np.float32))
    )
    assert sums(array).fault(np.array([2**18, np.nan], np.float32))


@pytest.mark.parametrize("rows", [2**10, 2**18])
def test_the_bound_holds_sums_in_float32_and_not_much_more(rows: int) -> None:
    array = np.random.default_rng(0).normal(3, 1, (rows, 4)).astype(np.float32)
    one_by_one = np.cumsum(array, 0, dtype=np.float32)[-1]
    exact = array.astype(np.float64).sum(0)
    assert sums(array).fault(one_by_one) is None
    assert sums(array).fault(exact * (1 + 1e-3))


def test_products_are_bounded_by_their_terms() -> None:
    random = np.random.default_rng(0)
    a, b = (random.normal(size=shape).astype(np.float32) for shape in ((5, 1000), (1000, 7)))
    case = Case("product", (a, b), lambda ops, x: ops.matmul(*x))
    assert case.fault(a @ b) is None
    wrong = a @ b
    wrong[3, 2] -= a[3, -1] * b[-1, 2]
    assert "the worst at [3, 2]" in str(case.fault(wrong))


def test_an_argmax_is_one_of_the_largest() -> None:
    array = np.array([[1, 3, 2], [5, 5, 0]], np.float32)
    case = Case("argmax", (array,), lambda ops, x: ops.argmax(x[0], 1))
    assert case.fault(np.array([1, 1])) is None
    assert case.fault(np.array([2, 0]))


def test_what_leaves_the_range_is_not_compared() -> None:
    reference = Reference(np.dtype(np.float32))
    huge = exactly(np.full(3, 1e30))
    with pytest.raises(OutOfRange):
        reference.multiply(huge, huge)
    with pytest.raises(OutOfRange):
        Reference(np.dtype(np.int32)).multiply(exactly([2.0**20]), exactly([2.0**20]))


def test_a_number_makes_the_same_case_again() -> None:
    for number in range(20):
        first, second = Maker(3, number).make(), Maker(3, number).make()
        assert first.text == second.text
        for one, other in zip(first.inputs, second.inputs, strict=True):
            np.testing.assert_array_equal(one, other)
