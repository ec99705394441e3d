"""Converts the global batch size to the batch size of one replica."""

from __future__ import annotations

from ipu_tf.ipu_run_config import RunConfig
from ipu_tf.tf_estimator.model_fn import ModeKeys

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
