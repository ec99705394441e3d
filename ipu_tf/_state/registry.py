"""`register_state`: registers what a module remembers for the whole process; `clear_states` clears it for tests."""

from __future__ import annotations

import dataclasses
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class State:
    """A registered kind of state.

    Attributes:
        kind: its name.
        state: the object that holds it.
        kept: why `clear_states` leaves it as it is; "" if it is cleared.
    """

    kind: str
    state: Any
    kept: str = ""


class ProcessValue(Generic[T]):
    """Value of the process that is replaced as a whole, so that readers need no lock.

    Args:
        default: the value in a new process.

    Example:
        >>> folder = ProcessValue("")
        >>> folder.value = "/tmp/cache"
        >>> folder.clear()
        >>> folder.value
        ''
    """

    def __init__(self, default: T) -> None:
        self._default = default
        self.value = default

    def clear(self) -> None:
        """Sets the default."""
        self.value = self._default


_STATES: dict[str, State] = {}


def register_state(kind: str, state: T, *, kept: str = "") -> T:
    """Registers an object that holds state of the whole process.

    Args:
        kind: what it is, one object each. A module that is imported again replaces its own.
        state: the object. Its method `clear` makes it what it is in a new process.
        kept: why it is not cleared; "" if it is.

    Returns:
        `state`.

    Raises:
        TypeError: if it is to be cleared and has no method `clear`.
    """
    if not kept and not callable(getattr(state, "clear", None)):
        raise TypeError(f"State that is cleared needs a method `clear`. Received: {type(state).__name__} for {kind!r}.")
    _STATES[kind] = State(kind, state, kept)
    return state


def registered_states() -> tuple[State, ...]:
    """Returns every kind of state that was registered, in the order of registration."""
    return tuple(_STATES.values())


def clear_states() -> None:
    """Clears every kind of state that is not kept. Nothing may run on the device meanwhile.

    `ipu_tf.emulation.clear_session` is the function for users: it waits for programs first.
    """
    for each in registered_states():
        if not each.kept:
            each.state.clear()
