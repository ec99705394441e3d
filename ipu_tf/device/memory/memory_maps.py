"""Checks the process's number of memory mappings against the system's limit (`vm.max_map_count`).

XLA maps the code of each compiled function by itself, in up to a hundred pieces of three mappings each. Linux gives a
process 65,530 mappings (`vm.max_map_count`); beyond it, memory cannot be allocated, threads cannot start,
and a C++ exception ends in a segmentation fault of the unwinder.
"""

from __future__ import annotations

import gc
import threading
import warnings
from pathlib import Path

from ipu_tf._state.once import first_time
from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.errors import DeviceError

_MAPS = Path("/proc/self/maps")
_LIMIT = Path("/proc/sys/vm/max_map_count")
_COLLECT, _REFUSE = 0.5, 0.9
"""Parts of the limit: from the first on, garbage is collected; from the second on, nothing is compiled."""
_OF_A_FUNCTION = 300
"""About the most mappings that a compiled function has: a program has one, a pipeline three for each stage."""

_ADVICE = (
    "Delete models, graphs and functions that are not used any more, or raise the limit "
    "(sysctl -w vm.max_map_count=262144)."
)

_lock = threading.Lock()
_left = register_state("memory mappings: functions until they are counted again", ProcessValue(0))


class TooManyMappings(DeviceError):
    """Raised if the process has nearly as many memory mappings as the system allows.

    Args:
        mappings: how many it has.
        limit: how many it may have.
    """

    def __init__(self, mappings: int, limit: int) -> None:
        super().__init__(
            "The process has nearly as many memory mappings as the system allows, and would die at the limit: each "
            f"compiled program needs some. {_ADVICE} Received: {mappings} mappings, of {limit}."
        )


def make_room() -> None:
    """Ensures that the process has enough mappings left for one more compiled function.

    Unreferenced programs are garbage-collected once half of the limit is used; it warns the first time that this does
    not help.

    Raises:
        TooManyMappings: where they are nearly used up.
    """
    with _lock:
        _left.value -= 1
        if _left.value >= 0 or not (limit := _limit()):
            return
        used = _used()
        if used > _COLLECT * limit:
            gc.collect()
            used = _used()
        if used > _REFUSE * limit:
            raise TooManyMappings(used, limit)
        if used > _COLLECT * limit and first_time("memory mappings"):
            warnings.warn(f"Compiled programs use {used} of the {limit} memory mappings. {_ADVICE}", stacklevel=2)
        _left.value = max(0, int(_REFUSE * limit - used) // _OF_A_FUNCTION // 4)


def _used() -> int:
    with _MAPS.open("rb") as lines:
        return sum(1 for _ in lines)


def _limit() -> int:
    """Returns the system's limit; 0 if there is none, as on systems other than Linux."""
    try:
        return int(_LIMIT.read_text())
    except OSError:
        return 0
