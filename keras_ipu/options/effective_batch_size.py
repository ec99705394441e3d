"""Logs the effective batch size."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from ipu_tf._state.once import first_time

_log = logging.getLogger("ipu_tf")


def log_effective_batch_size(
    model: str, shapes: Iterable[Sequence[int]], accumulation_count: int, replicas: int
) -> None:
    """Logs the effective batch size once for each model and step split; nothing if steps are not split.

    Args:
        model: the model's name.
        shapes: of the arrays of a batch.
        accumulation_count: batches of a replica to a weight update.
        replicas: how many there are.
    """
    if accumulation_count * replicas > 1:
        batch = next((shape[0] for shape in shapes if shape), 1)
        if first_time("effective batch size", model, batch, accumulation_count, replicas):
            _log_message(model, batch, accumulation_count, replicas)


def _log_message(model: str, batch: int, count: int, replicas: int) -> None:
    split = [f"{count} batches an update"] * (count > 1) + [f"{replicas} replicas"] * (replicas > 1)
    _log.info(
        "ipu_tf: %s: Training is split into %s, your effective batch size is %d.",
        model,
        " on each of ".join(split),
        batch * count * replicas,
    )
