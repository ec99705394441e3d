"""Configures the IPU device of an estimator, and computes the batch size of one replica."""

from __future__ import annotations

from ipu_tf._config.state import configured_system
from ipu_tf.config import IPUConfig, configure_ipu_system
from ipu_tf.ipu_run_config import IPURunConfig, RunConfig
from ipu_tf.tf_estimator.model_fn import ModeKeys
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


BATCH_SIZE = "batch_size"
"""The name of the batch size among the hyper-parameters."""

_ARGUMENTS = {
    ModeKeys.TRAIN: "train_batch_size",
    ModeKeys.EVAL: "eval_batch_size",
    ModeKeys.PREDICT: "predict_batch_size",
}


def local_batch_size(size: int | None, mode: str, config: RunConfig) -> int | None:
    """The batch size of one replica of one worker; None where none was given.

    Raises:
        ValueError: if the size is not positive, or cannot be divided among them.
    """
    if size is None:
        return None
    name = _ARGUMENTS[mode]
    if size < 1:
        raise ValueError(f"{name} (got {size}) must be positive")
    workers, replicas = _workers(mode, config), config.ipu_run_config.num_replicas
    if size % (workers * replicas):
        raise ValueError(
            f"{name} (got {size}) must be divisible by num_workers * num_replicas ({workers} * {replicas})"
        )
    return size // (workers * replicas)


def _workers(mode: str, config: RunConfig) -> int:
    strategies = {ModeKeys.TRAIN: config.train_distribute, ModeKeys.EVAL: config.eval_distribute}
    strategy = strategies.get(mode)
    return 1 if strategy is None else int(strategy.num_replicas_in_sync)
