"""`IPUMultiWorkerStrategyV1`: strategy over several workers connected by TensorFlow's gRPC; one worker here."""

from __future__ import annotations

from typing import Any

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf.emulation import EmulationError
from ipu_tf.ipu_strategy import IPUStrategyV1


class IPUMultiWorkerStrategyV1(IPUStrategyV1):
    """As `IPUStrategy`, for a cluster of one worker.

    Refused: a cluster of several workers. `PopDistStrategy` runs a program in several processes.

    Args:
        cluster_resolver: a `tf.distribute.cluster_resolver.ClusterResolver`.
        ipu_device: the device, e.g. `/device:IPU:0`.
        variables_on_host: whether variables stay on the host; without effect with one worker.

    Raises:
        EmulationError: if the cluster has several workers.
    """

    def __init__(
        self, cluster_resolver: Any, ipu_device: str = "/device:IPU:0", variables_on_host: bool = False
    ) -> None:
        tasks = cluster_resolver.cluster_spec().as_dict()
        workers = sum(len(members) for members in tasks.values())
        if workers > 1:
            raise EmulationError(
                f"IPUMultiWorkerStrategyV1 must have a cluster of one worker; the cluster has {workers}: {tasks}. Use "
                "PopDistStrategy for several processes, which poprun, mpirun or Slurm start: docs/several_processes.md."
            )
        if variables_on_host:
            record_ignored("IPUMultiWorkerStrategyV1.variables_on_host", True, "one worker shares with no other")
        super().__init__(ipu_device)


IPUMultiWorkerStrategy = IPUMultiWorkerStrategyV1
