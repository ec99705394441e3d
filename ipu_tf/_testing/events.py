"""Traces device events in tests: compilations, transfers and executions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from ipu_tf._sessions.device_trace import TRACE
from ipu_tf.config import IPUConfig
from ipu_tf.poplar.driver.trace_pb2 import IpuTraceEvent

_WORDS = {
    IpuTraceEvent.COMPILE_BEGIN: "Compile begin",
    IpuTraceEvent.COMPILE_END: "Compile end",
    IpuTraceEvent.HOST_TO_DEVICE_TRANSFER: "Host->Device",
    IpuTraceEvent.DEVICE_TO_HOST_TRANSFER: "Device->Host",
    IpuTraceEvent.LOAD_ENGINE: "Load engine",
    IpuTraceEvent.EXECUTE: "Execute",
}


def enable_ipu_events(ipu_config: IPUConfig) -> None:
    """Starts recording device events for the life of the process.

    Args:
        ipu_config: the configuration; accepted for compatibility, events belong to no configuration here.
    """
    TRACE.start()


def extract_all_events(events: Iterable[Any]) -> list[IpuTraceEvent]:
    """The events of a trace.

    Args:
        events: what the op of `gen_ipu_ops.ipu_event_trace()` gave: bytes, or tensors of them.
    """
    return [IpuTraceEvent.FromString(event.numpy() if hasattr(event, "numpy") else event) for event in events]


def extract_all_types_from_event_trace(events: Iterable[Any]) -> list[int]:
    """The type of each event of a trace, e.g. `IpuTraceEvent.EXECUTE`; see `extract_all_events`."""
    return [event.type for event in extract_all_events(events)]


def extract_all_strings_from_event_trace(events: Iterable[Any]) -> str:
    """A trace as text, with a ruled heading, the time and the kind of each event; see `extract_all_events`."""
    return "".join(_text(event) for event in extract_all_events(events))


def _text(event: IpuTraceEvent) -> str:
    when = time.strftime("%F %T %z", time.localtime(event.timestamp))
    uploads = f": {event.uploads} variables" if event.uploads else ""
    return f"{'-' * 70}\n=> @ {when}: {_WORDS[event.type]}{uploads}\n"
