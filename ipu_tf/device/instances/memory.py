"""Shared memory of the instances of one host: instance 0 makes it, the others map it, all or none use it.

    instance 0   memfd, a random token in it ─► /proc/PID/fd/N ─► instance 1   maps it, finds the token
                            └───────────── mapped by all: sums in `instance_sum.c` ─────────────┘

The kernel takes it back when the last process ends: nothing is left of instances that were killed.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import logging
import mmap
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ipu_tf.device.convolution.native import library
from ipu_tf.device.environment import shares_memory, thread_count

HALF, OF_ALL, MOST = 4 << 20, 32 << 20, 64
"""Bytes of a half of an instance's region, of one half of all regions at most, and the most instances."""
_TOKEN = 16
"""Bytes of the token, at the end."""
_BACKSTOP = 60.0
"""Seconds after the timeout by which a wait in the memory ends, if nothing else ended the process."""
_log = logging.getLogger("ipu_tf")

Exchange = Callable[[str, bytes], list[bytes]]
"""Gives the others a value by name, and returns those of all: `InstanceGroup.exchange`."""


@dataclasses.dataclass(frozen=True)
class SharedMemory:
    """The memory, mapped by this process and open for its programs.

    Attributes:
        mapped: keeps it mapped.
    """

    mapped: mmap.mmap

    def calls(self) -> int:
        """Returns how many sums and gathers of programs it served."""
        return int(_functions().ipu_tf_instances_calls())

    def close(self) -> None:
        """Has it serve no more calls; instances that wait for this one learn that it left."""
        _functions().ipu_tf_instances_close()


def shared(index: int, count: int, timeout: float, exchange: Exchange) -> SharedMemory | None:
    """Maps one memory in all instances; None, in all, if one of them cannot.

    Args:
        index: which instance this is.
        count: how many there are.
        timeout: seconds for which one waits for another.
        exchange: gives values to the others.
    """
    size = _size(count)
    made = _made(size) if index == 0 and _own_reason(count) == "" else None
    given = [json.loads(each) for each in exchange("shared memory", json.dumps(_offer(count, made)).encode())]
    reason = _reason(given)
    mapped: mmap.mmap | str = reason or _mapped(given[0], size)
    told = exchange("shared memory, opened", (mapped if isinstance(mapped, str) else "").encode())
    if made is not None:
        os.close(made[0])
    failed = {instance: text.decode() for instance, text in enumerate(told) if text}
    if failed or isinstance(mapped, str):
        text = reason or ", ".join(f"instance {instance}: {why}" for instance, why in failed.items())
        (_log.info if reason else _log.warning)("ipu_tf: sums over instances go through XLA's collectives: %s.", text)
        return None
    _open(mapped, index, count, timeout, [each["process"] for each in given])
    return SharedMemory(mapped)


def half_size(count: int) -> int:
    """Returns the bytes of a half of an instance's region, whole pages."""
    return min(HALF, OF_ALL // count) // mmap.PAGESIZE * mmap.PAGESIZE


def _functions() -> ctypes.CDLL:
    functions = library.needed().functions
    functions.ipu_tf_instances_head.restype = ctypes.c_int64
    functions.ipu_tf_instances_calls.restype = ctypes.c_int64
    return functions


def _size(count: int) -> int:
    """Returns the bytes of the memory."""
    return (
        0 if _own_reason(count) else int(_functions().ipu_tf_instances_head()) + 2 * count * half_size(count) + _TOKEN
    )


def _own_reason(count: int) -> str:
    """Returns why this instance shares no memory; empty if it may."""
    if not shares_memory():
        return "IPU_TF_INSTANCE_MEMORY is 0"
    if not hasattr(os, "memfd_create") or not hasattr(os, "pidfd_open"):
        return "this system cannot share memory between processes in this way"
    if count > MOST:
        return f"there are more than {MOST} instances"
    return "" if library.usable() else library.described()


def _made(size: int) -> tuple[int, str]:
    """Makes the memory; returns its descriptor and the token that is in it."""
    token = secrets.token_bytes(_TOKEN)
    descriptor = os.memfd_create("ipu_tf instances", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size)
    os.pwrite(descriptor, token, size - _TOKEN)
    return descriptor, token.hex()


def _offer(count: int, made: tuple[int, str] | None) -> dict[str, Any]:
    """Returns what this instance tells the others of itself, and of the memory if it made it."""
    reason = _own_reason(count)
    native = library.loaded() if not reason else None
    return {
        "reason": reason,
        "host": _host(),
        "native": native.target(library.INSTANCE_SUM) if native is not None else "",
        "process": os.getpid(),
        "memory": made[0] if made is not None else -1,
        "token": made[1] if made is not None else "",
    }


def _host() -> str:
    """Returns what tells this boot of this host from others; empty where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _reason(given: list[dict[str, Any]]) -> str:
    """Returns why the instances share no memory, by what they told; empty if they may try."""
    for instance, each in enumerate(given):
        if each["reason"]:
            return f"instance {instance}: {each['reason']}"
        if not each["host"] or each["host"] != given[0]["host"]:
            return f"instance {instance} runs on another host than instance 0"
        if each["native"] != given[0]["native"]:
            return f"instance {instance} has other native kernels than instance 0"
    return ""


def _mapped(first: dict[str, Any], size: int) -> mmap.mmap | str:
    """Maps what instance 0 made; returns why not, if it cannot, or finds something else there."""
    try:
        descriptor = os.open(f"/proc/{first['process']}/fd/{first['memory']}", os.O_RDWR | os.O_CLOEXEC)
        try:
            mapped = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        return f"it cannot map the memory of instance 0: {error}"
    if mapped[size - _TOKEN :] != bytes.fromhex(first["token"]):
        return "what it finds in place of the memory of instance 0 has not its token"
    return mapped


def _open(mapped: mmap.mmap, index: int, count: int, timeout: float, processes: list[int]) -> None:
    """Has native calls of this process use the memory. The descriptors of the processes stay open."""
    descriptors = (ctypes.c_int * count)(*(os.pidfd_open(process) for process in processes))
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    _functions().ipu_tf_instances_open(
        ctypes.c_void_p(address),
        ctypes.c_int64(half_size(count)),
        ctypes.c_int64(count),
        ctypes.c_int64(index),
        descriptors,
        ctypes.c_int(thread_count() > count),
        ctypes.c_double(timeout + _BACKSTOP),
    )
