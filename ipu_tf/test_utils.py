"""Test utilities for IPU programs. Importing this module adds assertions about reports to `tf.test.TestCase`.

Example:
    >>> from ipu_tf import test_utils as tu
    >>> with tu.ipu_session() as session:
    ...     pass
"""

from __future__ import annotations

from ipu_tf._testing.assertions import install_assertions
from ipu_tf._testing.datasets import (
    create_dual_increasing_dataset,
    create_multi_increasing_dataset,
    create_single_increasing_dataset,
)
from ipu_tf._testing.events import (
    enable_ipu_events,
    extract_all_events,
    extract_all_strings_from_event_trace,
    extract_all_types_from_event_trace,
)
from ipu_tf._testing.hardware import (
    add_hw_ci_connection_options,
    get_ci_num_ipus,
    has_ci_ipus,
    skip_if_not_enough_ipus,
    skip_on_hw,
    skip_with_asan,
    test_may_use_ipus_or_model,
    test_uses_ipus,
)
from ipu_tf._testing.reports import ReportHelper, ReportJSON, TensorMap, missing_whitelist_entries_in_names
from ipu_tf._testing.session import ipu_session, move_variable_initialization_to_cpu

__all__ = [
    "ReportHelper",
    "ReportJSON",
    "TensorMap",
    "add_hw_ci_connection_options",
    "create_dual_increasing_dataset",
    "create_multi_increasing_dataset",
    "create_single_increasing_dataset",
    "enable_ipu_events",
    "extract_all_events",
    "extract_all_strings_from_event_trace",
    "extract_all_types_from_event_trace",
    "get_ci_num_ipus",
    "has_ci_ipus",
    "ipu_session",
    "missing_whitelist_entries_in_names",
    "move_variable_initialization_to_cpu",
    "skip_if_not_enough_ipus",
    "skip_on_hw",
    "skip_with_asan",
    "test_may_use_ipus_or_model",
    "test_uses_ipus",
]

install_assertions()
