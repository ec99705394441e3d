"""Checkpoints of a run of several instances: where each writes its own, when, and which one all of them have.

    folder/instance-0/checkpoint-00000012.weights.h5     a checkpoint is one of these in each instance,
    folder/instance-1/checkpoint-00000012.weights.h5     made at the same step, under the same number

Instances agree after every execution, so that all save at the same step. The last checkpoint that all have is removed
when all have a newer one: whenever they are killed, there is one that all can go on from.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ipu_tf import distributed
from ipu_tf._checkpoints.checkpoint_file import Checkpoint
from ipu_tf._checkpoints.checkpoint_folder import CheckpointError, CheckpointFolder
from ipu_tf._training.replication import instance_count, instance_index

_MOST_FILES = 8
"""Checkpoints of a folder that instances tell each other of: there are three at most."""
_FIRST = 1
"""The number of a run's first checkpoint."""
_log = logging.getLogger("ipu_tf")


class Wanted(NamedTuple):
    """What an instance wants after an execution, or any of them.

    Attributes:
        save: a checkpoint is due.
        busy: one is being written.
        failed: the last one could not be written.
        exit: the process was told to end.
    """

    save: bool
    busy: bool
    failed: bool
    exit: bool


def wanted_by_any(own: Wanted) -> Wanted:
    """Returns what any of the instances wants; all have to ask."""
    if instance_count() == 1:
        return own
    save, busy, failed, end = (bool(flags.any()) for flags in _told(own, "wanted").T)
    return Wanted(save, busy, failed, end)


def own_folder(path: Path) -> Path:
    """Returns the folder of this instance's checkpoints: the run's own if there is one instance.

    Raises:
        CheckpointError: if checkpoints in the run's folder are of one process and there are several, or the reverse.
    """
    count = instance_count()
    others = "instance-*" if count == 1 else "checkpoint-*"
    if path.is_dir() and any(path.glob(others)):
        raise CheckpointError(
            f"'{path}' must hold checkpoints of as many instances as the run has, {count}. Received: {others} of "
            f"{'several' if count == 1 else 'one'}. Start as many instances as before, or use another folder."
        )
    return path if count == 1 else path / f"instance-{instance_index()}"


def last_number_of_all(folder: CheckpointFolder) -> int:
    """Returns the highest number that a checkpoint has in any instance."""
    own = folder.last_number()
    return own if instance_count() == 1 else int(_told([own], "numbers").max())


def newest_of_all(folder: CheckpointFolder) -> tuple[Path, Checkpoint] | None:
    """Returns this instance's part of the newest checkpoint that is whole in all instances; None if there is none.

    A run that was killed while its first checkpoint was written, which only some instances have, has none: theirs is
    removed.

    Raises:
        CheckpointError: if an instance has other checkpoints, but there is none that all have.
    """
    if instance_count() == 1:
        return folder.newest()
    own = dict(folder.whole())
    numbers = _told(sorted([0] * _MOST_FILES + list(own))[-_MOST_FILES:], "checkpoints")
    common = set.intersection(*(set(map(int, row)) for row in numbers)) - {0}
    if common:
        return folder.path_of(max(common)), own[max(common)]
    found = {instance: sorted(set(map(int, row)) - {0}) for instance, row in enumerate(numbers)}
    if set().union(*found.values()) == {_FIRST}:
        _log.warning("ipu_tf: the run ended while its first checkpoint was written: it begins anew.")
        folder.path_of(_FIRST).unlink(missing_ok=True)
        return None
    if any(found.values()):
        raise CheckpointError(
            f"'{folder.path.parent}' must hold a checkpoint that all {instance_count()} instances have whole. "
            f"Received, by instance: {found}. To train from the beginning, remove the folder."
        )
    return None


def _told(own: object, what: str) -> np.ndarray:
    """Returns what each instance tells all, `[instances, ...]`."""
    return np.asarray(distributed.allgather(np.asarray(own), tensor_name=f"ExactResume: {what}"))
