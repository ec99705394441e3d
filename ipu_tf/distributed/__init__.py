"""Distribution over several processes with PopDist: always one process here."""

from __future__ import annotations

from ipu_tf.distributed.host_collective_ops import allgather, allreduce, broadcast

__all__ = ["allgather", "allreduce", "broadcast"]
