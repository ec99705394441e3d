"""`Target`: device ordinal, replicas and floating-point settings of a program."""

from __future__ import annotations

import dataclasses

from ipu_tf.lowering.importer.numerics import Numerics


@dataclasses.dataclass(frozen=True)
class Target:
    """Target device of a program.

    Attributes:
        ordinal: of the `/device:IPU:<ordinal>`.
        replicas: how many copies of the program run on it.
        numerics: how the device computes with floating-point numbers.
        instances: how many instances run the program together, each with so many replicas.
    """

    ordinal: int = 0
    replicas: int = 1
    numerics: Numerics = Numerics()
    instances: int = 1
