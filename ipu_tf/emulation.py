"""What the emulation cannot do, said by name."""

from __future__ import annotations


class EmulationError(NotImplementedError):
    """A request that the emulated IPU cannot meet: says what was asked for and what to do instead."""
