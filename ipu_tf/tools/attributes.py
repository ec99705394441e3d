"""`device_attributes`: what the tools and `gcipuinfo` say of each emulated IPU, by Graphcore's names."""

from __future__ import annotations

import datetime
import socket
from collections.abc import Sequence

from ipu_tf._config.attachments import Attachment, attachments
from ipu_tf._config.devices import ipus_of_id, multi_ipu_sizes
from ipu_tf.device.environment import ipu_count

PARTITION = "emulated"
TARGET = "Emulated"
NOT_KNOWN = "N/A"
_PHYSICAL = (
    "average board temp",
    "average die temp",
    "clock",
    "ipu power",
    "ipu utilisation",
    "ipu utilisation (session)",
)
"""Only hardware has them."""


def device_attributes(processes: Sequence[Attachment] | None = None) -> list[dict[str, str]]:
    """Returns the attributes of every emulated IPU, in the order of their numbers.

    Temperature, power, clock and utilisation are "N/A". An IPU that a process uses has "user process id",
    "user executable" and "user name"; of several processes the first.

    Args:
        processes: those that use IPUs; by default those of this user.

    Example:
        >>> first = device_attributes([])[0]
        >>> first["id"], first["remote buffers supported"], first["ipu power"]
        ('0', '1', 'N/A')
    """
    known = attachments() if processes is None else processes
    return [_of_ipu(ipu, known) for ipu in range(ipu_count())]


def ids() -> dict[int, tuple[int, ...]]:
    """Returns the IPUs of every id that `select_ipus` takes."""
    return {index: ipus_of_id(index) for index in range(len(multi_ipu_sizes(ipu_count())))}


def host() -> str:
    """Returns the name of this machine, which emulates the IPUs."""
    return socket.gethostname()


def _of_ipu(ipu: int, processes: Sequence[Attachment]) -> dict[str, str]:
    attributes = {
        "id": str(ipu),
        "target": TARGET,
        "board ipu index": str(ipu),
        "board type": "emulated",
        "ipu architecture": "emulated",
        "partition": PARTITION,
        "hostname": host(),
        **dict.fromkeys(_PHYSICAL, NOT_KNOWN),
        "remote buffers": "1",
        "remote buffers supported": "1",
    }
    users = [each for each in processes if ipu in each.ipus]
    if users:
        since = datetime.datetime.fromtimestamp(users[0].since, datetime.UTC)
        attributes |= {
            "process start time": f"{since:%Y%m%dT%H%M%SZ}",
            "user process id": str(users[0].pid),
            "user executable": users[0].command,
            "user name": users[0].user,
        }
    return attributes
