"""Former names of `ipu_tf.distributed`, up to SDK 3.0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipu_tf.distributed import allgather, allreduce, broadcast
from ipu_tf.emulation import EmulationError
from ipu_tf.popdist import getInstanceIndex, getNumInstances, init

if TYPE_CHECKING:
    from ipu_tf.horovod import ipu_horovod_strategy as ipu_horovod_strategy
    from ipu_tf.horovod import popdist_strategy as popdist_strategy

__all__ = ["allgather", "allreduce", "broadcast", "init", "local_rank", "local_size", "rank", "size"]


def rank() -> int:
    """Returns this process's index: 0, the only one."""
    return getInstanceIndex()


def size() -> int:
    """Returns how many processes there are: 1."""
    return getNumInstances()


def local_rank() -> int:
    """Returns this process's index on this machine: 0, the only one."""
    return getInstanceIndex()


def local_size() -> int:
    """Returns how many processes this machine has: 1."""
    return getNumInstances()


if not TYPE_CHECKING:  # else every misspelt name would be an object

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
