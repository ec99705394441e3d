"""Logs the effective batch size."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence

_log = logging.getLogger("ipu_tf")


def log_effective_batch_size(model: str, shapes: Iterable[Sequence[int]], micro_batches: int, replicas: int) -> None:
    """Logs the effective batch size once for each model and step split; nothing if steps are not split.

    Args:
        model: the model's name.
        shapes: of the arrays of a batch.
        micro_batches: batches of a replica to a weight update.
        replicas: how many there are.
    """
    if micro_batches * replicas > 1:
        _tell(model, next((shape[0] for shape in shapes if shape), 1), micro_batches, replicas)


@functools.cache
def _tell(model: str, batch: int, micro_batches: int, replicas: int) -> None:
    split = [f"{micro_batches} batches an update"] * (micro_batches > 1) + [f"{replicas} replicas"] * (replicas > 1)
    _log.info(
        "ipu_tf: %s: Training is split into %s, your effective batch size is %d.",
        model,
        " on each of ".join(split),
        batch * micro_batches * replicas,
    )
