"""Where a program runs."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Target:
    """The device of a program.

    Attributes:
        ordinal: of the `/device:IPU:<ordinal>`.
        replicas: how many copies of the program run on it.
    """

    ordinal: int = 0
    replicas: int = 1
