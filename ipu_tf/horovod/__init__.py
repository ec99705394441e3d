"""Former names of `ipu_tf.distributed`, up to SDK 3.0."""

from __future__ import annotations

from ipu_tf.distributed import allgather, allreduce, broadcast
from ipu_tf.emulation import EmulationError
from ipu_tf.popdist import getInstanceIndex, getNumInstances, init

__all__ = ["allgather", "allreduce", "broadcast", "init", "local_rank", "local_size", "rank", "size"]


def rank() -> int:
    """Which of the processes this is: 0, the only one."""
    return getInstanceIndex()


def size() -> int:
    """How many processes there are: 1."""
    return getNumInstances()


def local_rank() -> int:
    """Which of this machine's processes this is: 0, the only one."""
    return getInstanceIndex()


def local_size() -> int:
    """How many processes this machine has: 1."""
    return getNumInstances()


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module 'ipu_tf.horovod' has no attribute {name!r}")
    if name in ("popdist_strategy", "ipu_horovod_strategy"):
        import importlib

        return importlib.import_module(f"ipu_tf.horovod.{name}")
    raise EmulationError(
        f"ipu.horovod.{name} belongs to Horovod, which runs a program as several processes: that is not emulated. "
        "`ipu.distributed` has allgather, allreduce and broadcast for the one process there is."
    )
