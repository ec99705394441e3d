"""Graphcore's `ipu.horovod`, up to SDK 3.0: processes and collectives between their hosts, by Horovod's names.

They are PopDist's instances and the collectives of `ipu_tf.distributed`: no MPI and no Horovod is used. Values have to
be equal in shape and dtype, but for the first dimension of `allgather`, and are matched by their names in graphs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ipu_tf import distributed
from ipu_tf.device.instances.place import place
from ipu_tf.distributed import broadcast as _broadcast
from ipu_tf.distributed.host_collective_ops import gather_rows
from ipu_tf.emulation import EmulationError
from ipu_tf.popdist import finalizeBackend as shutdown
from ipu_tf.popdist import getInstanceIndex as rank
from ipu_tf.popdist import getLocalInstanceIndex as local_rank
from ipu_tf.popdist import getNumInstances as size
from ipu_tf.popdist import init

if TYPE_CHECKING:
    from ipu_tf.horovod import ipu_horovod_strategy as ipu_horovod_strategy
    from ipu_tf.horovod import ipu_multi_replica_strategy as ipu_multi_replica_strategy
    from ipu_tf.horovod import popdist_strategy as popdist_strategy

__all__ = [
    "Adasum",
    "Average",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "local_rank",
    "local_size",
    "mlsl_built",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "shutdown",
    "size",
]

Average, Sum, Adasum = 0, 1, 2
"""Reductions of `allreduce`; Adasum is refused, as Graphcore's is."""


def local_size() -> int:
    """Returns how many instances this host has, as `poprun` and Open MPI say.

    Raises:
        EmulationError: if nothing says it.
    """
    count = place().local_count
    if not count:
        raise EmulationError(
            "How many instances a host has is not known: set OMPI_COMM_WORLD_LOCAL_SIZE, as poprun and mpirun do."
        )
    return count


def is_homogeneous() -> bool:
    """Returns whether all hosts have as many instances: as far as this one knows."""
    return size() % local_size() == 0


def allreduce(tensor: Any, op: int | None = None) -> Any:
    """The sum or mean of the values that all instances have.

    Args:
        tensor: this instance's value, of one shape and dtype in all; or `tf.IndexedSlices`, whose rows are gathered.
        op: `Sum` or `Average`; by default the latter.

    Raises:
        NotImplementedError: for `Adasum`.
        ValueError: for another reduction.
        tf.errors.UnknownError: as for `ipu_tf.distributed.allreduce`.

    Example:
        >>> import tensorflow as tf
        >>> float(allreduce(tf.constant(3.0)))
        3.0
    """
    if op == Adasum:
        raise NotImplementedError("The Adasum reduction is not implemented.")
    if op not in (None, Average, Sum):
        raise ValueError(f"`op` must be Average or Sum. Received: {op!r}.")
    mean = op != Sum
    if isinstance(tensor, tf.IndexedSlices):
        values = allgather(tensor.values)
        shared = values / tf.cast(size(), values.dtype) if mean else values
        return tf.IndexedSlices(shared, allgather(tensor.indices), tensor.dense_shape)
    total = distributed.allreduce(tensor, tf.distribute.ReduceOp.SUM)
    return total / tf.cast(size(), total.dtype) if mean else total


def allgather(tensor: Any, name: str | None = None) -> tf.Tensor:
    """The rows that all instances have, one after the other: `[rows of all, ...]`.

    Args:
        tensor: this instance's value; its first dimension may be another one in each instance.
        name: what the instances call it; by default the tensor's name, in eager mode one name for all.

    Raises:
        ValueError: for a scalar.
        tf.errors.UnknownError: as for `ipu_tf.distributed.allgather`.
    """
    return gather_rows(tensor, name)


def broadcast(tensor: Any, root_rank: int, name: str | None = None) -> tf.Tensor:
    """The value that one instance has; see `ipu_tf.distributed.broadcast`.

    Args:
        tensor: this instance's value.
        root_rank: the instance whose value all get.
        name: as for `allgather`.
    """
    return _broadcast(tensor, root_rank, name)


def mpi_built() -> bool:
    """Returns whether MPI is used: no."""
    return False


mpi_enabled = mpi_threads_supported = nccl_built = ddl_built = mlsl_built = mpi_built


def gloo_built() -> bool:
    """Returns whether gloo is used: by XLA, for sums of programs on processors."""
    return True


gloo_enabled = gloo_built

if not TYPE_CHECKING:  # else every misspelt name would be an object

    def __getattr__(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module 'ipu_tf.horovod' has no attribute {name!r}")
        if name in ("popdist_strategy", "ipu_horovod_strategy", "ipu_multi_replica_strategy"):
            import importlib

            return importlib.import_module(f"ipu_tf.horovod.{name}")
        raise EmulationError(
            f"ipu.horovod.{name} is Horovod's own, which Graphcore's module did not have: programs sum gradients over "
            "all instances by themselves. `ipu.horovod` has allreduce, allgather and broadcast for values of the hosts."
        )
