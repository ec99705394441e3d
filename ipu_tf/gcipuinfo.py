"""Stand-in for `gcipuinfo`, Graphcore's library for monitors: attributes of the emulated IPUs as text."""

from __future__ import annotations

import json
from typing import NoReturn

from ipu_tf.emulation import EmulationError
from ipu_tf.tools.attributes import NOT_KNOWN, device_attributes

__all__ = ["DiscoverActivePartitionIPUs", "DiscoverAllPartitionIPUs", "IpuPower", "gcipuinfo"]

IpuPower = "ipu power"
DiscoverActivePartitionIPUs, DiscoverAllPartitionIPUs = 0, 1
_INSTEAD = (
    "Names of attributes are text here, such as 'ipu power'. Emulated IPUs have no health, events of applications, "
    "clock, temperature or power."
)


class gcipuinfo:  # noqa: N801 - Graphcore's name
    """Attributes of the emulated IPUs, as they were when it was made, or at each question.

    Args:
        discoveryMode: there is one partition.

    Example:
        >>> found = gcipuinfo()
        >>> found.getNamedAttributeForDevice(0, "clock")
        'N/A'
    """

    def __init__(self, discoveryMode: int = DiscoverActivePartitionIPUs) -> None:  # noqa: N803
        self._updates = False
        self._found = device_attributes()

    def setUpdateMode(self, autoUpdate: bool) -> None:  # noqa: N802, N803
        """Sets whether each question is answered with what holds then."""
        self._updates = bool(autoUpdate)

    def updateData(self) -> bool:  # noqa: N802
        """Finds out what holds now; returns True."""
        self._found = device_attributes()
        return True

    def getDevices(self) -> list[dict[str, str]]:  # noqa: N802
        """Returns the attributes of each IPU."""
        if self._updates:
            self.updateData()
        return [dict(each) for each in self._found]

    def getDevicesAsJSON(self) -> str:  # noqa: N802
        """Returns the attributes of each IPU as JSON."""
        return json.dumps(self.getDevices())

    def getNamedAttributeForAll(self, name: str) -> list[str]:  # noqa: N802
        """Returns an attribute of each IPU, "N/A" where it has none of this name."""
        return [each.get(name, NOT_KNOWN) for each in self.getDevices()]

    def getNamedAttributeForDevice(self, device: int, name: str) -> str:  # noqa: N802
        """Returns an attribute of an IPU, "N/A" if it has none of this name.

        Raises:
            IndexError: if there is no such IPU.
        """
        found = self.getNamedAttributeForAll(name)
        if not 0 <= device < len(found):
            raise IndexError(f"There are IPUs 0 to {len(found) - 1}. Received: {device}.")
        return found[device]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python itself asks for such names
            raise AttributeError(name)
        raise EmulationError(f"gcipuinfo.{name} is not emulated. {_INSTEAD}")


def __getattr__(name: str) -> NoReturn:
    if name.startswith("__"):
        raise AttributeError(f"module 'ipu_tf.gcipuinfo' has no attribute {name!r}")
    raise EmulationError(f"gcipuinfo.{name} is not emulated. {_INSTEAD}")
