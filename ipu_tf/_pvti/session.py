"""Recording of a process as `PVTI_OPTIONS` asks for it: started once, written when it is closed or the process ends."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from ipu_tf._pvti.perfetto import trace_events, write_trace
from ipu_tf._pvti.pvti_file import write_pvti
from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device import timeline
from ipu_tf.device.environment import pvti_options

OPTIONS = ("enable", "directory", "channels", "duration")


@dataclasses.dataclass(frozen=True)
class PvtiOptions:
    """What is recorded, and where it is written.

    Attributes:
        directory: the folder of the files.
        channels: names of the channels that are recorded; None for all.
    """

    directory: Path = Path()
    channels: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class _Session:
    """A recording.

    Attributes:
        path: of its `.pvti` file.
        trace: what was recorded.
    """

    path: Path
    trace: timeline.HostTrace


_session: ProcessValue[_Session | None] = register_state("recording of the host", ProcessValue(None))
_started = register_state("recording asked for by the environment", ProcessValue(False))
_at_exit = register_state("recording written at the end", ProcessValue(False), kept="atexit keeps its functions")


def parsed(text: str) -> PvtiOptions | None:
    """Returns what `PVTI_OPTIONS` asks for; None for nothing. As with Graphcore's, text that is no JSON enables it.

    Raises:
        ValueError: for an option that there is not, and where `enable` is neither true nor false.
    """
    if not text:
        return None
    try:
        options = json.loads(text)
    except ValueError:
        return PvtiOptions()
    if not isinstance(options, dict):
        return PvtiOptions() if options else None
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise ValueError(f"PVTI_OPTIONS must have options among {', '.join(OPTIONS)}. Received: {unknown[0]}.")
    enable = str(options.get("enable", "false")).lower()
    if enable not in ("true", "false"):
        raise ValueError(f"PVTI_OPTIONS: enable must be true or false. Received: {options['enable']!r}.")
    if enable == "false":
        return None
    return PvtiOptions(Path(str(options.get("directory", "."))), _channels(options.get("channels")))


def duration() -> object:
    """Returns the option `duration` of `PVTI_OPTIONS`, which has no effect; None if it is not given."""
    try:
        options = json.loads(pvti_options() or "{}")
    except ValueError:
        return None
    return options.get("duration") if isinstance(options, dict) else None


def start_if_asked() -> None:
    """Starts to record if `PVTI_OPTIONS` asks for it, once in a process.

    Raises:
        ValueError: for a wrong option, as `parsed`.
        OSError: if the directory cannot be made or written to.
    """
    if _started.value:
        return
    options = parsed(pvti_options())
    if options is not None:
        start(options)
    _started.value = True


def start(options: PvtiOptions) -> Path:
    """Starts to record; returns the `.pvti` file that is written at the end. What was recorded before is written first.

    Raises:
        OSError: if the directory cannot be made or written to.
    """
    close()
    directory = options.directory.absolute()
    wanted = f"PVTI_OPTIONS: directory must be a folder to write in. Received: '{directory}'."
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise type(error)(f"{wanted} ({error.strerror})") from error
    if not os.access(directory, os.W_OK):
        raise PermissionError(wanted)
    trace = timeline.HostTrace(options.channels)
    path = _new_path(directory)
    _session.value = _Session(path, trace)
    timeline.use(trace)
    if not _at_exit.value:
        _at_exit.value = True
        atexit.register(close)
    return path


def current_path() -> str:
    """Returns the `.pvti` file that is going to be written; "" if nothing is recorded."""
    return "" if _session.value is None else str(_session.value.path)


def close() -> None:
    """Ends the recording and writes its files; a failure is a warning. Nothing happens if nothing is recorded."""
    session, _session.value = _session.value, None
    timeline.use(None)
    if session is None:
        return
    session.trace.close_open()
    # Where warnings are errors, the first one ends this: both files are written before.
    said = " ".join(_written(session))
    if said:
        warnings.warn(said, RuntimeWarning, stacklevel=2)


def _written(session: _Session) -> Iterator[str]:
    """Writes the files of a recording; yields a sentence for what is not in them."""
    path, trace, pid = session.path, session.trace, os.getpid()
    name = f"{Path(sys.argv[0]).name or 'python'} (ipu_tf, emulated IPU; times of this machine)"
    try:
        write_pvti(path, trace, pid, name)
    except (OSError, ValueError) as error:
        yield f"No trace was written to '{path}': {error}"
    json_path = path.with_suffix(".json")
    try:
        write_trace(json_path, trace_events(trace, pid, name))
    except (OSError, ValueError) as error:
        yield f"No trace was written to '{json_path}': {error}"
    if trace.dropped:
        yield f"The trace '{path}' has the first million events; {trace.dropped} more are not in it."


def _new_path(directory: Path) -> Path:
    """Returns a path that there is not yet; its name is as Graphcore's, but for names that came in the same second."""
    stem = f"{time.strftime('%a_%b_%d_%H:%M:%S_%Y_GMT', time.gmtime())}_{os.getpid()}"
    names = (stem, *(f"{stem}_{number}" for number in range(1, 10_000)))
    return next(directory / f"{name}.pvti" for name in names if not (directory / f"{name}.pvti").exists())


def _channels(given: object) -> tuple[str, ...] | None:
    if given is None:
        return None
    return tuple(map(str, given)) if isinstance(given, Sequence) and not isinstance(given, str) else (str(given),)


def _forget() -> None:
    """Records nothing in a forked process: its parent writes the files, and another thread may hold the lock."""
    _session.value = None
    timeline.use(None)


os.register_at_fork(after_in_child=_forget)
