"""Writes files atomically: readers see the old file, or none, until the new one is complete."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".partial"
"""Suffix of a file that is being written, or whose writer was killed."""
_FOR_EVERYBODY, _FOR_THE_OWNER = 0o666, 0o600


def write_whole(path: str | os.PathLike[str], write: Callable[[BinaryIO], object], private: bool = False) -> None:
    """Writes a file atomically: under a unique temporary name in the same folder, then renamed.

    Several threads and processes may write one file at the same time: it is what one of them wrote.

    Args:
        path: where; a file there is replaced.
        write: writes the contents to the file that it is given.
        private: whether only the user that owns the file may read it; otherwise the process's umask decides.

    Raises:
        OSError: if the folder does not exist, cannot be written to, or has no room. An existing file is unchanged
            then, and no temporary file is left.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}{TEMPORARY}")
    mode = _FOR_THE_OWNER if private else _FOR_EVERYBODY
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
