"""Files of this project's own kinds: a line that says what they are, then a payload that the line vouches for.

    ipu_tf executable 1 sha256=4f... length=1234 (emulated IPU: no popef, no IPU can run it)
    <1234 bytes>

A file appears under its name only when it is whole, and is read only if every byte is as it was written.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from pathlib import Path

from ipu_tf.device.errors import DeviceError

_VERSION = 1
_LONGEST_HEADER = 256
TEMPORARY = ".partial"
"""How the name of a file ends that is being written, or whose writer was killed."""


class DamagedFile(DeviceError):
    """A file of ours is not as it was written."""


class ForeignFile(DeviceError, ValueError):
    """A file is not of the kind that was wanted: another kind of ours, another version, or not ours at all."""


def write_sealed(path: str | os.PathLike[str], kind: str, payload: bytes) -> None:
    """Writes a file as a whole: readers see the old one, or none, until the new one is complete.

    Args:
        path: where; a file there is replaced.
        kind: a word that says what the payload is.
        payload: what to keep.

    Raises:
        OSError: if the directory does not exist or cannot be written to.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        with open(temporary, "xb") as file:
            file.write(_header(kind, payload))
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_sealed(path: str | os.PathLike[str], kind: str) -> bytes:
    """The payload of a file of this kind.

    Raises:
        FileNotFoundError: if there is none.
        ForeignFile: if it is no file of this kind.
        DamagedFile: if it is one, but not as it was written.
    """
    data = Path(path).read_bytes()
    line, _, payload = data[:_LONGEST_HEADER].partition(b"\n")
    payload = data[len(line) + 1 :]
    if line + b"\n" == _header(kind, payload):
        return payload
    raise _unreadable(Path(path), kind, data, line)


def _header(kind: str, payload: bytes) -> bytes:
    digest = hashlib.sha256(payload).hexdigest()
    said = (
        f"ipu_tf {kind} {_VERSION} sha256={digest} length={len(payload)} (emulated IPU: no popef, no IPU can run it)\n"
    )
    return said.encode()


def _unreadable(path: Path, kind: str, data: bytes, line: bytes) -> DeviceError:
    """Why a file is not what was wanted."""
    if line.startswith(b"ipu_tf "):
        said = line.decode(errors="replace").split()[1:3]
        if re.fullmatch(rb"ipu_tf \w+ \d+ sha256=[0-9a-f]{64} .*", line) and said != [kind, str(_VERSION)]:
            return ForeignFile(
                f"'{path}' must hold: ipu_tf {kind}, version {_VERSION}. Received: {said[0]}, version {said[1]}."
            )
        return DamagedFile(f"'{path}' is damaged: it holds other bytes than were written. Write it again.")
    what = "is a PopEF file" if path.suffix == ".popef" or b"popef" in data[:16].lower() else "is no file of ipu_tf"
    return ForeignFile(
        f"'{path}' {what}: it starts with {data[:16]!r}. What Poplar writes, a popef for one, holds code for IPU "
        "hardware, which an emulated IPU cannot run. Compile the program again, with "
        "ipu.application_compile_op.experimental_application_compile_op."
    )
