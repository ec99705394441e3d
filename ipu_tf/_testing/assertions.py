"""Adds assertions about reports and tolerances to `tf.test.TestCase`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import tensorflow as tf

from ipu_tf._patches.installation import replace_in
from ipu_tf._testing.reports import ReportHelper
from ipu_tf.emulation import EmulationError

#: Assertions about what only a Poplar report holds.
_POPLAR_ONLY = (
    "assert_all_compute_sets_and_list",
    "assert_always_live_memory",
    "assert_compute_io_overlap_percentage",
    "assert_compute_sets_contain_list",
    "assert_compute_sets_matches",
    "assert_compute_sets_not_in_blacklist",
    "assert_each_tile_memory_is_less_than",
    "assert_execution_report_cycles",
    "assert_global_exchange_percentage",
    "assert_max_tile_memory",
    "assert_number_of_executions",
    "assert_total_tile_memory",
    "assert_vertices_contain_list",
)


def _assert_num_reports(self: Any, report_helper: ReportHelper, n: int) -> None:
    """Asserts that so many programs were compiled since the helper was made or cleared."""
    self.assertLen(report_helper.find_reports(), n)


def _assert_all_in_tolerance(self: Any, actual: Iterable[int], expected: int, tolerance: float = 0.001) -> None:
    """Asserts that every number is within the fraction `tolerance` of `expected`."""
    self.assertAllInRange(list(actual), int(expected * (1.0 - tolerance)), int(expected * (1.0 + tolerance)))


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise EmulationError(
            f"{name} is about a Poplar report (compute sets, cycles or tile memory), and an emulated IPU gives none. "
            "Test values or ipu_tf.emulation.device_counts() instead."
        )

    return refuse


def install_assertions() -> None:
    """Adds the assertions to `tf.test.TestCase`. Those about Poplar's figures raise an `EmulationError`."""
    ours: dict[str, Callable[..., None]] = {name: _refusing(name) for name in _POPLAR_ONLY}
    ours |= {"assert_num_reports": _assert_num_reports, "_assert_all_in_tolerance": _assert_all_in_tolerance}
    for name, assertion in ours.items():
        replace_in(tf.test.TestCase, name, functools.partial(_instead_of, assertion), missing=None)


def _instead_of(assertion: Callable[..., None], stock: object) -> Callable[..., None]:
    """The assertion, in place of none."""
    return assertion
