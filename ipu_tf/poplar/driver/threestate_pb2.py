"""`ThreeState`: on, off, or undefined (the compiler decides)."""

from __future__ import annotations

from ipu_tf.poplar.enumeration import ProtoEnum


class ThreeState(ProtoEnum):
    """Value of a three-state option."""

    THREESTATE_OFF = 0
    THREESTATE_ON = 1
    THREESTATE_UNDEFINED = 2


THREESTATE_OFF = ThreeState.THREESTATE_OFF
THREESTATE_ON = ThreeState.THREESTATE_ON
THREESTATE_UNDEFINED = ThreeState.THREESTATE_UNDEFINED
