"""Memory of this process, as Linux counts it."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_bytes() -> int:
    """Returns the bytes that the process has now, after what it no longer uses went back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return _read("VmRSS")


def forget_peak() -> None:
    """Has `peak_bytes` count from now on."""
    _FORGET.write_text("5")


def peak_bytes() -> int:
    """Returns the most bytes that the process had since `forget_peak`."""
    return _read("VmHWM")


def _read(name: str) -> int:
    line = next(each for each in _STATUS.read_text().splitlines() if each.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024
