"""Reads and writes files with a checksummed header line: kind, version and SHA-256 of the payload.

    ipu_tf executable 1 sha256=4f... length=1234 (emulated IPU: no popef, no IPU can run it)
    <1234 bytes>

A file appears under its name only when it is whole, and is read only if every byte is as it was written. The checksum
detects damage, not forgery: whoever can write the file can also write a matching checksum.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from ipu_tf.device.cache.whole_file import write_whole
from ipu_tf.device.errors import DeviceError

_LONGEST_HEADER = 256
_HEADER = re.compile(rb"ipu_tf (\w{1,40}) (\d{1,9}) sha256=[0-9a-f]{64} length=(\d{1,18}) [^\n]*")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class DamagedFile(DeviceError, ValueError):
    """Raised if a file of this package is damaged."""


class ForeignFile(DeviceError, ValueError):
    """Raised if a file is of another kind or version than wanted, or was not written by this package."""


class UntrustedFile(DeviceError, PermissionError):
    """Raised if other users can write to a file or folder that holds executable code."""


def write_sealed(
    path: str | os.PathLike[str], kind: str, payload: bytes, version: int = 1, private: bool = False
) -> None:
    """Writes a file with header and checksum, atomically.

    Args:
        path: where; a file there is replaced.
        kind: a word that says what the payload is.
        payload: the bytes to write.
        version: of the payload's format.
        private: whether only the user that owns the file may read it.

    Raises:
        OSError: if the directory does not exist or cannot be written to.
    """
    write_whole(path, lambda file: file.writelines((_header(kind, version, payload), payload)), private)


def read_sealed(path: str | os.PathLike[str], kind: str, version: int = 1, private: bool = False) -> bytes:
    """Reads the payload of a file of this kind, with its checksum checked.

    Args:
        path: the file.
        kind: a word that says what the payload is.
        version: of the payload's format.
        private: whether it holds code to run, so that it must belong to this user or to root, and only they may be
            able to write to it.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if there is none.
        UntrustedFile: if it is `private`, and others can write to it.
        ForeignFile: if it is no file of this kind.
        DamagedFile: if it is one, but not as it was written.
    """
    path = Path(path)
    # A pipe would be waited for, a device never ends.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0))) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ForeignFile(f"'{path}' must be a file. Received: something of type {stat.filemode(status.st_mode)}.")
        if private:
            check_trusted(path, status)
        start = file.read(_LONGEST_HEADER)
        line = start.partition(b"\n")[0]
        said = _HEADER.fullmatch(line)
        # What else is there is not read: it may be larger than memory.
        if said is None or (said[1].decode(), int(said[2])) != (kind, version):
            raise _unreadable(path, f"{kind}, version {version}", start, line)
        if len(line) + 1 + int(said[3]) != status.st_size:
            raise _damaged(path)
        data = start + file.read()
    payload = data[len(line) + 1 :]
    if line + b"\n" != _header(kind, version, payload):
        raise _damaged(path)
    return payload


def check_trusted(path: Path, status: os.stat_result) -> None:
    """Checks that only this user and root can write to a file or folder.

    Args:
        path: what to call it.
        status: what `os.stat` says of it.

    Raises:
        UntrustedFile: if others can. Systems without POSIX users are not checked.
    """
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid in (0, os.geteuid()) and not status.st_mode & _WRITABLE_BY_OTHERS:
        return
    raise UntrustedFile(
        f"'{path}' holds compiled code, which is run as it is, so nobody but you may be able to write to it. Take "
        f"it over with `chown {os.geteuid()}` and `chmod go-w`, or use another folder. Received: "
        f"{stat.filemode(status.st_mode)}, owned by user {status.st_uid}."
    )


def header_bytes(kind: str, version: int, digest: str, length: int) -> bytes:
    """Returns the header line of a file.

    Args:
        kind: a word that says what the payload is.
        version: of the payload's format.
        digest: SHA-256 of the payload, in hexadecimal digits.
        length: bytes of the payload.
    """
    said = f"ipu_tf {kind} {version} sha256={digest} length={length}"
    return f"{said} (emulated IPU: no popef, no IPU can run it)\n".encode()


def _header(kind: str, version: int, payload: bytes) -> bytes:
    return header_bytes(kind, version, hashlib.sha256(payload).hexdigest(), len(payload))


def _damaged(path: Path) -> DamagedFile:
    return DamagedFile(f"'{path}' is damaged: it holds other bytes than were written. Write it again.")


def _unreadable(path: Path, wanted: str, start: bytes, line: bytes) -> DeviceError:
    """Builds the error for a file with the wrong header."""
    if said := _HEADER.fullmatch(line):
        received = f"{said[1].decode()}, version {int(said[2])}"
        return ForeignFile(f"'{path}' must hold: ipu_tf {wanted}. Received: {received}.")
    if line.startswith(b"ipu_tf "):
        return _damaged(path)
    what = "is a PopEF file" if path.suffix == ".popef" or b"popef" in start[:16].lower() else "is no file of ipu_tf"
    return ForeignFile(
        f"'{path}' {what}: it starts with {start[:16]!r}. What Poplar writes, a popef for one, holds code for IPU "
        "hardware, which an emulated IPU cannot run. Compile the program again, with "
        "ipu.application_compile_op.experimental_application_compile_op."
    )
