"""Programs that run as several processes, with PopDist: one process here, which is all of them."""

from __future__ import annotations

from ipu_tf.distributed.host_collective_ops import allgather, allreduce, broadcast

__all__ = ["allgather", "allreduce", "broadcast"]
