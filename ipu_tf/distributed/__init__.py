"""Distribution over several instances with PopDist: collectives between their hosts, and `PopDistStrategy`."""

from __future__ import annotations

from ipu_tf.distributed.host_collective_ops import allgather, allreduce, broadcast

__all__ = ["allgather", "allreduce", "broadcast"]
