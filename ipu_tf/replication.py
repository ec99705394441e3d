"""How many replicas of a program run: the IPUs of its device, divided by those that one copy of it needs."""

from __future__ import annotations

from ipu_tf.config_devices import IPUDevice
from ipu_tf.config_state import require_device
from ipu_tf.emulation import EmulationError


def require_one_replica(ordinal: int) -> IPUDevice:
    """The device `/device:IPU:<ordinal>`, if a program on one IPU runs there as one replica.

    Raises:
        EmulationError: if the device has several IPUs. The program would run as several replicas, each on data of its
            own; running one of them in silence would give other numbers than were asked for.
        tf.errors.FailedPreconditionError: if nothing is configured.
        tf.errors.InvalidArgumentError: if there is no device of that ordinal.
    """
    device = require_device(ordinal)
    if device.num_ipus > 1:
        raise EmulationError(
            f"/device:IPU:{ordinal} has {device.num_ipus} IPUs, on which a program that uses one IPU runs as "
            f"{device.num_ipus} replicas. Replication is not emulated yet. Configure one IPU for each device: "
            "auto_select_ipus = 1, or [1, 1] for two devices."
        )
    return device
