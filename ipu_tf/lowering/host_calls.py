"""Markers by which a running program calls the host: tables that stay there, and printing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ipu_tf.lowering.module import custom_call_target

HOST_LOOKUP = "ipu.host_lookup"
HOST_UPDATE = "ipu.host_update"
HOST_APPLY = "ipu.host_apply"
PRINT = "ipu.print"
HOST_CALLS = frozenset({HOST_LOOKUP, HOST_UPDATE, HOST_APPLY, PRINT})


def calls_host(operations: Iterable[Any]) -> bool:
    """Whether any of a program's operations calls the host while the program runs."""
    return any(custom_call_target(operation) in HOST_CALLS for operation in operations)
