"""Configures the IPU device of an estimator."""

from __future__ import annotations

from ipu_tf._config.state import configured_system
from ipu_tf.config import IPUConfig, configure_ipu_system
from ipu_tf.ipu_run_config import IPURunConfig
from ipu_tf.utils import get_num_of_ipus_in_device


def configure(run_config: IPURunConfig) -> str:
    """Configures the system from a run configuration; returns the name of its device.

    Raises:
        ValueError: if the device has another number of IPUs than the replicas and shards need.
    """
    if run_config.ipu_options is not None:
        configure_ipu_system(run_config.ipu_options)
    elif configured_system() is None:
        one = IPUConfig()
        one.auto_select_ipus = 1
        one.configure_ipu_system()
    device = f"/device:IPU:{run_config.ordinal}"
    wanted, there = run_config.num_replicas * run_config.num_shards, get_num_of_ipus_in_device(device)
    if wanted != there:
        raise ValueError(
            f"`IPURunConfig` configured with {wanted} devices ({run_config.num_replicas} num_replicas times "
            f"{run_config.num_shards} num_shards), but `IpuOptions` configured with {there} devices"
        )
    return device
