"""`Place`: which of several instances this process is, by the variables of what started it."""

from __future__ import annotations

import dataclasses

from ipu_tf.device.environment import instance_variables

_STARTERS = (
    ("POPDIST_NUM_INSTANCES", "POPDIST_INSTANCE_INDEX", "POPDIST_LOCAL_INSTANCE_INDEX"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"),
)
"""Names of the number of instances, of this one's index, and of that on its host: `poprun`, Open MPI, Slurm's srun."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Place of this process among the instances of a program.

    Attributes:
        count: how many instances there are.
        index: which one this is.
        local_index: which one of those on this host.
        replicas: how many replicas all of them have.
        local_replicas: how many this one has.
        first_replica: the first of its own.
        ipus_per_replica: IPUs of each.
        by_popdist: whether PopDist's variables say so.
        local_count: how many instances are on this host; 0 if nothing says it.
    """

    count: int = 1
    index: int = 0
    local_index: int = 0
    replicas: int = 1
    local_replicas: int = 1
    first_replica: int = 0
    ipus_per_replica: int = 1
    by_popdist: bool = False
    local_count: int = 1


def place() -> Place:
    """Reads the place of this process from the environment: alone, if nothing says otherwise.

    Raises:
        ValueError: if a variable is no number, or they contradict each other.
    """
    given = instance_variables()
    count, index, local_index = 1, 0, 0
    for size, rank, local in _STARTERS:
        if size in given:
            count, index, local_index = _number(given, size, 1), _number(given, rank, 0), _number(given, local, 0)
            if not 0 <= index < count:
                raise ValueError(f"{rank} must be in the range [0, {size}). Received: {_text(given, size, rank)}.")
            break
    total = _number(given, "POPDIST_NUM_TOTAL_REPLICAS", count)
    own = _number(given, "POPDIST_NUM_LOCAL_REPLICAS", total // count)
    if own * count != total:
        names = ("POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS")
        raise ValueError(
            f"All {count} instances must have the same number of replicas. Received: {_text(given, *names)}."
        )
    first = _number(given, "POPDIST_REPLICA_INDEX_OFFSET", index * own)
    ipus = _number(given, "POPDIST_NUM_IPUS_PER_REPLICA", 1)
    here = _number(given, "OMPI_COMM_WORLD_LOCAL_SIZE", int(count == 1))
    return Place(count, index, local_index, total, own, first, ipus, "POPDIST_NUM_TOTAL_REPLICAS" in given, here)


def _number(given: dict[str, str], name: str, default: int) -> int:
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name} must be a whole number, 0 or more. Received: {text!r}.")
    return int(text)


def _text(given: dict[str, str], *names: str) -> str:
    return ", ".join(f"{name}={given[name]}" for name in names if name in given)
