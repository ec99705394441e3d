"""Processes that use emulated IPUs: each that configures a system says so in a file, which other processes read.

    $XDG_RUNTIME_DIR/ipu_tf/<pid>.json, or <folder for temporary files>/ipu_tf-<user>/<pid>.json

A file whose process is gone counts as none; the next process and `gc-reset` remove it. Several processes may
use one emulated IPU.
"""

from __future__ import annotations

import atexit
import dataclasses
import getpass
import json
import logging
import os
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ipu_tf._config.devices import IPUDevice, ipus_of_id
from ipu_tf._state.once import first_time
from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.environment import runtime_folder

_log = logging.getLogger("ipu_tf")
_STARTED_FIELD = 19
"""Place of the start time in `/proc/<pid>/stat`, after the name in brackets."""


@dataclasses.dataclass(frozen=True)
class Attachment:
    """A process that uses emulated IPUs.

    Attributes:
        pid: its number.
        born: when the system started it, in the system's own unit: a later process of this number has another.
        since: when it configured its IPUs, in seconds since 1970.
        command: its command line.
        user: who runs it.
        ipus: numbers of the IPUs.
    """

    pid: int
    born: int
    since: float
    command: str
    user: str
    ipus: tuple[int, ...]

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return _born(self.pid) == self.born


_own: ProcessValue[Path | None] = register_state("file on this process's IPUs", ProcessValue(None))
_at_exit = register_state("removal of the file on IPUs", ProcessValue(False), kept="atexit keeps its functions")


def attach(devices: Sequence[IPUDevice], ids: Sequence[int]) -> None:
    """Says that this process uses the IPUs of some devices, and removes the files of processes that are gone.

    A failure is logged once: it concerns monitors alone.

    Args:
        devices: the devices.
        ids: their ids in `select_ipus`; none if they take IPUs from number 0 on.
    """
    own = Attachment(os.getpid(), _born(os.getpid()), time.time(), " ".join(sys.argv), _user(), _ipus(devices, ids))
    try:
        folder = _folder()
        path = folder / f"{own.pid}.json"
        unfinished = folder / f".{own.pid}.unfinished"
        unfinished.write_text(json.dumps(dataclasses.asdict(own)))
        os.replace(unfinished, path)
        remove_stale()
    except OSError as error:
        if first_time("file on IPUs"):
            _log.info("ipu_tf: gc-monitor does not show this process: %s", error)
        return
    _own.value = path
    if not _at_exit.value:
        _at_exit.value = True
        atexit.register(detach)


def detach() -> None:
    """Says that this process uses no IPUs any more."""
    path, _own.value = _own.value, None
    if path is not None and path.name == f"{os.getpid()}.json":  # a forked process leaves its parent's file
        path.unlink(missing_ok=True)


def attachments() -> tuple[Attachment, ...]:
    """Returns the processes of this user that use IPUs, by their numbers."""
    return tuple(each for _, each in _all() if each.alive)


def remove_stale() -> tuple[int, ...]:
    """Removes the files of processes that are gone; returns the numbers of these processes."""
    gone = [(path, each.pid) for path, each in _all() if not each.alive]
    for path, _ in gone:
        path.unlink(missing_ok=True)
    return tuple(pid for _, pid in gone)


def _all() -> list[tuple[Path, Attachment]]:
    found = []
    try:
        paths = sorted(_folder().glob("*.json"))
    except OSError:
        return []
    for path in paths:
        try:
            found.append((path, _attachment(json.loads(path.read_text()))))
        except (OSError, ValueError, TypeError, KeyError):  # gone meanwhile, or no file of ours
            continue
    return sorted(found, key=lambda each: each[1].pid)


def _attachment(data: Any) -> Attachment:
    """Returns what a file says.

    Raises:
        KeyError, TypeError: if it is no file of ours: a field is missing, unknown, or of another type.
    """
    found = Attachment(**{**data, "ipus": tuple(data["ipus"])})
    types = {"pid": int, "born": int, "since": int | float, "command": str, "user": str}
    wrong = [name for name, wanted in types.items() if not isinstance(getattr(found, name), wanted)]
    if wrong or not all(isinstance(ipu, int) for ipu in found.ipus):
        raise TypeError(f"fields of other types: {', '.join(wrong) or 'ipus'}")
    return found


def _folder() -> Path:
    """Returns the folder of this user, made if it is missing.

    Raises:
        OSError: if it cannot be made, or is another user's.
    """
    folder = runtime_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise PermissionError(f"'{folder}' must be a folder of this user.")
    return folder


def _ipus(devices: Sequence[IPUDevice], ids: Sequence[int]) -> tuple[int, ...]:
    if ids:
        return tuple(dict.fromkeys(ipu for each in ids for ipu in ipus_of_id(each)))
    return tuple(range(sum(device.num_ipus for device in devices)))


def _born(pid: int) -> int:
    """Returns when a process was started; -1 if there is none, 0 where the system does not say."""
    if not Path("/proc/self/stat").exists():
        try:
            os.kill(pid, 0)
        except OSError:
            return -1
        return 0
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_STARTED_FIELD])
    except OSError:
        return -1


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())
