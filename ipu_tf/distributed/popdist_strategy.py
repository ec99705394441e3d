"""`PopDistStrategy`: strategy for programs that run as several processes; there is one process here."""

from __future__ import annotations

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf.config import IPUConfig
from ipu_tf.emulation import EmulationError
from ipu_tf.ipu_strategy import IPUStrategyV1
from ipu_tf.popdist import getInstanceIndex, getNumInstances


class PopDistStrategy(IPUStrategyV1):
    """As `IPUStrategy`, for the replicas of all processes; there is one process.

    Args:
        ipu_device: the device, e.g. `/device:IPU:0`.
        add_ipu_cross_replica_reductions: whether `reduce` inside a program reduces over the replicas. Without effect
            while the device runs one replica.
        enable_dataset_iterators: as for `IPUStrategy`.
        enable_keras_extensions: as for `IPUStrategy`.

    Raises:
        EmulationError: in one of several instances.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        _refuse_several()
        if not add_ipu_cross_replica_reductions:
            record_ignored(
                "PopDistStrategy.add_ipu_cross_replica_reductions", False, "one process reduces over nothing by itself"
            )
        super().__init__(
            ipu_device,
            enable_dataset_iterators=enable_dataset_iterators,
            enable_keras_extensions=enable_keras_extensions,
        )

    def update_ipu_config(self, config: IPUConfig) -> None:
        """Sets the number of processes in a configuration: this one is the only one.

        Args:
            config: the configuration, which is changed.
        """
        config.experimental.multi_replica_distribution.process_count = getNumInstances()
        config.experimental.multi_replica_distribution.process_index = getInstanceIndex()


def _refuse_several() -> None:
    if getNumInstances() > 1:
        raise EmulationError(
            f"This process is one of {getNumInstances()} instances, and a strategy over several is not emulated: each "
            "trains on its own. Run one process, and give its device all the IPUs: `auto_select_ipus = n` runs n "
            "replicas in one process, with the same results."
        )
