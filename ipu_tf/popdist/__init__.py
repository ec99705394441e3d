"""PopDist, Graphcore's library for programs that run as several processes, which it calls instances.

    poprun --num-instances 2 --num-replicas 4 python3 train.py

starts them; so do `mpirun` and Slurm's `srun`. Without them a process is the only instance.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

from ipu_tf._config.state import configured_devices, current_config
from ipu_tf.device.instances import joined
from ipu_tf.device.instances.place import place
from ipu_tf.popdist.instances import check_ipus_per_replica

__all__ = [
    "checkNumIpusPerReplica",
    "execute_on_instances",
    "finalizeBackend",
    "getDeviceId",
    "getInstanceIndex",
    "getLocalInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
    "synchronize",
]

joined.expect_others()


def init() -> None:
    """Joins the other instances; a process on its own has none. Configuring the device does so too.

    Raises:
        InstanceError: if the device was used before, or the others do not come within `IPU_TF_INSTANCE_TIMEOUT`
            seconds.
    """
    joined.join()


def finalizeBackend() -> None:  # noqa: N802 - PopDist's name
    """Leaves the other instances. Instance 0 waits until all have left."""
    joined.leave()


def isPopdistEnvSet() -> bool:  # noqa: N802
    """Returns whether `poprun` started this process: whether its variables are set."""
    return place().by_popdist


def getNumInstances() -> int:  # noqa: N802
    """Returns how many instances run the program."""
    return place().count


def getInstanceIndex() -> int:  # noqa: N802
    """Returns this instance's index, from 0 on."""
    return place().index


def getLocalInstanceIndex() -> int:  # noqa: N802
    """Returns this instance's index among those on its host, from 0 on."""
    return place().local_index


def getNumTotalReplicas() -> int:  # noqa: N802
    """Returns how many replicas all instances run. Without `poprun` a device may have more: see `target_of`."""
    return place().replicas


def getNumLocalReplicas() -> int:  # noqa: N802
    """Returns how many replicas this instance runs."""
    return place().local_replicas


def getNumIpusPerReplica() -> int:  # noqa: N802
    """Returns how many IPUs a replica has: as `poprun` was told, else those of the first configured device, else 1."""
    if place().by_popdist:
        return place().ipus_per_replica
    devices = configured_devices()
    return devices[0].num_ipus if devices else 1


def checkNumIpusPerReplica(ipus_per_replica: int) -> None:  # noqa: N802
    """Checks that replicas of the program have as many IPUs as `poprun` was told.

    Raises:
        ValueError: if they have not.
    """
    check_ipus_per_replica(ipus_per_replica)


def getReplicaIndexOffset() -> int:  # noqa: N802
    """Returns the index of this instance's first replica: how many replicas the instances before it run."""
    return place().first_replica


def getDeviceId(ipus_per_replica: int | None = None) -> int:  # noqa: N802
    """The id of the IPUs that this instance uses, as `IPUConfig.select_ipus` takes it.

    Every instance has emulated IPUs of its own.

    Args:
        ipus_per_replica: how many IPUs a replica is to have; by default as many as `getNumIpusPerReplica` says.

    Raises:
        tf.errors.FailedPreconditionError: if no id has so many IPUs.
    """
    from ipu_tf._config.devices import device_id
    from ipu_tf._config.validation import as_numbers

    config = current_config()
    selected = () if config is None else as_numbers(config.select_ipus)
    return device_id((ipus_per_replica or getNumIpusPerReplica()) * getNumLocalReplicas(), selected)


def synchronize() -> None:
    """Waits until all instances have come here.

    Raises:
        InstanceError: if an instance ended, or does not come within `IPU_TF_INSTANCE_TIMEOUT` seconds.
    """
    others = joined.join()
    if others is not None:
        others.exchange("popdist.synchronize", b"")


def execute_on_instances(instances: Collection[int], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a function in some of the instances. The others go on; `synchronize` has them wait.

    Args:
        instances: indices of instances.
        function: what to call.
        args: its arguments.
        kwargs: its keyword arguments.

    Returns:
        What the function gives, in the instances that call it; None in others.

    Example:
        >>> execute_on_instances({0}, max, 1, 2)
        2
    """
    return function(*args, **kwargs) if getInstanceIndex() in instances else None


def __getattr__(name: str) -> ModuleType:
    if name == "tensorflow":
        return importlib.import_module("ipu_tf.popdist.tensorflow")
    raise AttributeError(f"module 'popdist' has no attribute {name!r}")
