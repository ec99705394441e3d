"""Test utilities for IPU programs. Importing this module adds assertions about reports to `tf.test.TestCase`.

Example:
    >>> from ipu_tf import test_utils as tu
    >>> with tu.ipu_session() as session:
    ...     pass
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from ipu_tf import utils
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

_OFF = 2
"""`RewriterConfig.OFF`: its module is private."""


@contextlib.contextmanager
def ipu_session(disable_grappler_optimizers: Sequence[str] | None = None) -> Iterator[tf.compat.v1.Session]:
    """A session for the current graph. What the graph places on an IPU runs there, as in every session.

    Args:
        disable_grappler_optimizers: optimizers of TensorFlow's graphs to switch off, by their names in
            `RewriterConfig`, e.g. `["function_optimization"]`.

    Raises:
        ValueError: if there is no such optimizer.
    """
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    rewrites = config.graph_options.rewrite_options
    for name in disable_grappler_optimizers or ():
        if name not in rewrites.DESCRIPTOR.fields_by_name:
            known = ", ".join(sorted(rewrites.DESCRIPTOR.fields_by_name))
            raise ValueError(f"TensorFlow has no graph optimizer {name!r}. It has: {known}.")
        setattr(rewrites, name, _OFF)
    with tf.compat.v1.Session(config=config) as session:
        yield session


def move_variable_initialization_to_cpu() -> None:
    """Makes the variables of the current graph initialise on the host, see `ipu_tf.utils`."""
    utils.move_variable_initialization_to_cpu()


install_assertions()
