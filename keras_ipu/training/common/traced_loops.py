"""`TracedLoops`: the loops that a function of a model has traced, one for each shape and setting."""

from __future__ import annotations

from typing import Any

from ipu_tf._loops.step_loop import StepLoop


class TracedLoops:
    """Base of the functions that run a model in loops on the device."""

    def __init__(self) -> None:
        self._loops: dict[Any, StepLoop] = {}

    @property
    def loops(self) -> tuple[StepLoop, ...]:
        """The loops that were traced so far."""
        return tuple(self._loops.values())
