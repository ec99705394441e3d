"""`set_ipu_config`: configures the IPUs of one PopDist process."""

from __future__ import annotations

from ipu_tf.config import IPUConfig
from ipu_tf.device.instances.place import place
from ipu_tf.popdist.instances import check_ipus_per_replica


def set_ipu_config(config: IPUConfig, ipus_per_replica: int | None = None, configure_device: bool = True) -> IPUConfig:
    """Selects this instance's share of the IPUs in a configuration: those of its replicas.

    Args:
        config: the configuration, which is changed. It is not applied: call its `configure_ipu_system` afterwards.
        ipus_per_replica: how many IPUs a replica has; as `poprun` was told by default, 1 without it.
        configure_device: whether to choose the IPUs too, by `auto_select_ipus`.

    Returns:
        The configuration.

    Raises:
        TypeError, ValueError: if the arguments are none of these, `ipus_per_replica` is below 1, or it is not what
            `poprun` was told.

    Example:
        >>> set_ipu_config(IPUConfig(), ipus_per_replica=2).auto_select_ipus
        2
    """
    if not isinstance(config, IPUConfig):
        raise TypeError(f"`config` must be an IPUConfig. Received: {config!r}.")
    own = place()
    ipus = own.ipus_per_replica if ipus_per_replica is None else ipus_per_replica
    if ipus < 1:
        raise ValueError(f"`ipus_per_replica` must be 1 or more. Received: {ipus_per_replica}.")
    check_ipus_per_replica(ipus)
    distribution = config.experimental.multi_replica_distribution
    distribution.process_count, distribution.process_index = own.count, own.index
    if configure_device:
        config.auto_select_ipus = ipus * own.local_replicas
    return config
