"""PopDist, Graphcore's library for programs that run as several processes: there is one process here.

PopRun, which would start several, is not emulated. In a process that says it is one of several (its environment does),
every function that depends on the others raises an `EmulationError`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any

from ipu_tf._config.state import configured_devices, current_config
from ipu_tf.popdist.instances import require_one_instance

__all__ = [
    "execute_on_instances",
    "finalizeBackend",
    "getDeviceId",
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
    "synchronize",
]


def init() -> None:
    """Joins the other processes. There are none.

    Raises:
        EmulationError: if the environment says that there are others.
    """
    require_one_instance()


def finalizeBackend() -> None:  # noqa: N802 - PopDist's name
    """Leaves the other processes. There are none."""


def isPopdistEnvSet() -> bool:  # noqa: N802
    """Returns whether PopRun started this process: never.

    Raises:
        EmulationError: if the environment says that this process is one of several.
    """
    require_one_instance()
    return False


def getNumInstances() -> int:  # noqa: N802
    """Returns how many processes run the program: 1.

    Raises:
        EmulationError: if the environment says that there are others.
    """
    require_one_instance()
    return 1


def getInstanceIndex() -> int:  # noqa: N802
    """Returns this process's index: 0, the only one.

    Raises:
        EmulationError: if the environment says that there are others.
    """
    require_one_instance()
    return 0


def getNumTotalReplicas() -> int:  # noqa: N802
    """Returns how many replicas all processes run: 1, as without PopRun. A device may have more: see `target_of`.

    Raises:
        EmulationError: if the environment says that there are other processes.
    """
    require_one_instance()
    return 1


def getNumLocalReplicas() -> int:  # noqa: N802
    """Returns how many replicas this process runs: those of all processes."""
    return getNumTotalReplicas()


def getNumIpusPerReplica() -> int:  # noqa: N802
    """Returns how many IPUs a replica has: those of the first configured device; 1 if nothing is configured."""
    require_one_instance()
    devices = configured_devices()
    return devices[0].num_ipus if devices else 1


def getReplicaIndexOffset() -> int:  # noqa: N802
    """Returns how many replicas the processes before this one run: none."""
    require_one_instance()
    return 0


def getDeviceId(ipus_per_replica: int | None = None) -> int:  # noqa: N802
    """The id of the IPUs that this process uses, as `IPUConfig.select_ipus` takes it.

    Args:
        ipus_per_replica: how many IPUs there are to be; by default as many as the first configured device has.

    Raises:
        EmulationError: if the environment says that there are other processes.
        tf.errors.FailedPreconditionError: if no id has so many IPUs.
    """
    require_one_instance()
    from ipu_tf._config.devices import device_id
    from ipu_tf._config.validation import as_numbers

    config = current_config()
    selected = () if config is None else as_numbers(config.select_ipus)
    return device_id(ipus_per_replica or getNumIpusPerReplica(), selected)


def synchronize() -> None:
    """Waits until all processes have come here: this one has.

    Raises:
        EmulationError: if the environment says that there are other processes.
    """
    require_one_instance()


def execute_on_instances(instances: Collection[int], function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function in some of the processes.

    Args:
        instances: indices of processes; this one is 0.
        function: what to call.
        args: its arguments.

    Returns:
        What the function gives, in the processes that call it; None in others.

    Raises:
        EmulationError: if the environment says that there are other processes.
    """
    require_one_instance()
    return function(*args) if getInstanceIndex() in instances else None


def __getattr__(name: str) -> ModuleType:
    if name == "tensorflow":
        return importlib.import_module("ipu_tf.popdist.tensorflow")
    raise AttributeError(f"module 'popdist' has no attribute {name!r}")
