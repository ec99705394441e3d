"""`IpuTraceEvent`: an event of the device. See `ipu_tf._sessions.device_trace` for how events are collected."""

from __future__ import annotations

import dataclasses
import json
from typing import ClassVar, NoReturn, Self

from ipu_tf.emulation import EmulationError


@dataclasses.dataclass(frozen=True)
class _Part:
    """Data of an event. Poplar's own data is refused by name."""

    event: str
    module_name: bytes = b""
    duration: int = 0
    data_transfer: bytes = b""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or name not in ("tensor_map", "instruction_info", "activity_trace"):
            raise AttributeError(f"A trace event's {self.event} has no field {name!r}.")
        raise EmulationError(
            f"{self.event}.{name} of a trace event describes IPU tiles, and an emulated IPU has none. "
            "Count the events by their `type` instead."
        )


@dataclasses.dataclass(frozen=True)
class IpuTraceEvent:
    """An event of the device.

    Attributes:
        type: one of the constants of this class, such as `IpuTraceEvent.EXECUTE`.
        timestamp: seconds since the epoch.
        uploads: for a transfer to the device, how many variables' values it carried.
    """

    COMPILE_BEGIN: ClassVar[int] = 0
    COMPILE_END: ClassVar[int] = 1
    HOST_TO_DEVICE_TRANSFER: ClassVar[int] = 2
    DEVICE_TO_HOST_TRANSFER: ClassVar[int] = 3
    LOAD_ENGINE: ClassVar[int] = 4
    EXECUTE: ClassVar[int] = 5

    type: int = 0
    timestamp: float = 0.0
    uploads: int = 0

    @classmethod
    def FromString(cls, text: bytes) -> Self:  # noqa: N802 - the name it has in protocol buffers
        """The event that `SerializeToString` turned into bytes.

        Raises:
            ValueError: if it did not.
        """
        try:
            event = cls(**json.loads(text))
            if type(event.type) is type(event.uploads) is int and type(event.timestamp) in (int, float):
                return event
        except (ValueError, TypeError, RecursionError):
            pass
        raise ValueError(f"These bytes are no trace event of this project: {text[:40]!r}.")

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name it has in protocol buffers
        """The event as bytes, in a form of this project's own."""
        return json.dumps(dataclasses.asdict(self)).encode()

    @property
    def compile_begin(self) -> _Part:
        """The part of a COMPILE_BEGIN event."""
        return _Part("compile_begin")

    @property
    def compile_end(self) -> _Part:
        """The part of a COMPILE_END event."""
        return _Part("compile_end")

    @property
    def load_engine(self) -> _Part:
        """The part of a LOAD_ENGINE event."""
        return _Part("load_engine")

    @property
    def execute(self) -> _Part:
        """The part of an EXECUTE event."""
        return _Part("execute")

    @property
    def data_transfer(self) -> _Part:
        """The part of a transfer: JSON with the number of variables it carried."""
        text = json.dumps({"variables": self.uploads}) if self.type == self.HOST_TO_DEVICE_TRANSFER else ""
        return _Part("data_transfer", data_transfer=text.encode())
