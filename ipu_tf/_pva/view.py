"""`View`: an object of `pva` whose attributes are those that an emulated IPU can answer; others are refused by name."""

from __future__ import annotations

import types
from typing import Any, NoReturn

from ipu_tf.emulation import EmulationError

INSTEAD = (
    "An emulated IPU has no cycles, vertices, exchange, code or tile map, so its reports have none. They have bytes "
    "that are alive by variable and step, FLOPs, and times of this machine: see `ipu_tf.reports.load`."
)


class View(types.SimpleNamespace):
    """Attributes of an object of a report.

    Args:
        path: how a program reaches it, for errors, such as `report.compilation`.
        answers: its attributes by name.

    Raises:
        EmulationError: when another attribute is read.
    """

    def __init__(self, path: str, **answers: Any) -> None:
        super().__init__(**answers)
        self._path = path

    def __repr__(self) -> str:
        """How a program reaches it, and what it can ask for; numbers and text with their values."""
        answers = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        shown = [f"{name}={value!r}" if isinstance(value, (str, int)) else name for name, value in answers.items()]
        return f"<pva {self._path}: {', '.join(shown)}>"

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # Python itself asks for such names
            raise AttributeError(name)
        raise EmulationError(f"pva: {self.__dict__.get('_path', 'report')}.{name} is not emulated. {INSTEAD}")
