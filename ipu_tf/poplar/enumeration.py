"""`ProtoEnum`: enumerations with the `Name` and `Value` methods of protocol buffer enumerations."""

from __future__ import annotations

import enum


class ProtoEnum(enum.IntEnum):
    """An enumeration of a message: members are ints; `Name` and `Value` translate.

    Example:
        >>> from ipu_tf.poplar.driver.threestate_pb2 import ThreeState
        >>> ThreeState.Name(1), ThreeState.Value("THREESTATE_OFF")
        ('THREESTATE_ON', 0)
    """

    @classmethod
    def Name(cls, number: int) -> str:  # noqa: N802 - the name it has in protocol buffers
        """The name of a member.

        Raises:
            ValueError: if no member has this number.
        """
        return cls(number).name

    @classmethod
    def Value(cls, name: str) -> int:  # noqa: N802 - the name it has in protocol buffers
        """The number of a member.

        Raises:
            ValueError: if no member has this name.
        """
        if name not in cls.__members__:
            raise ValueError(f"{cls.__name__} has no member {name!r}. It has: {', '.join(cls.__members__)}.")
        return int(cls[name])
