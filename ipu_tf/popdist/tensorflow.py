"""`set_ipu_config`: configures the IPUs of one PopDist process."""

from __future__ import annotations

from ipu_tf.config import IPUConfig
from ipu_tf.popdist.instances import require_one_instance


def set_ipu_config(config: IPUConfig, ipus_per_replica: int | None = None, configure_device: bool = True) -> IPUConfig:
    """Selects this process's share of the IPUs in a configuration: one replica's, as without PopRun.

    Args:
        config: the configuration, which is changed. It is not applied: call its `configure_ipu_system` afterwards.
        ipus_per_replica: how many IPUs the replica has; 1 by default.
        configure_device: whether to choose the IPUs too, by `auto_select_ipus`.

    Returns:
        The configuration.

    Raises:
        EmulationError: if the environment says that this process is one of several.
        TypeError, ValueError: if the arguments are none of these, or `ipus_per_replica` is below 1.

    Example:
        >>> set_ipu_config(IPUConfig(), ipus_per_replica=2).auto_select_ipus
        2
    """
    require_one_instance()
    if not isinstance(config, IPUConfig):
        raise TypeError(f"`config` must be an IPUConfig. Received: {config!r}.")
    ipus = 1 if ipus_per_replica is None else ipus_per_replica
    if ipus < 1:
        raise ValueError(f"`ipus_per_replica` must be 1 or more. Received: {ipus_per_replica}.")
    distribution = config.experimental.multi_replica_distribution
    distribution.process_count, distribution.process_index = 1, 0
    if configure_device:
        config.auto_select_ipus = ipus
    return config
