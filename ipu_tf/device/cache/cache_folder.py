"""Creates, checks and bounds the executable cache's folder: private to the user, refused if others can write to it."""

from __future__ import annotations

import contextlib
import os
import stat
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from ipu_tf.device.cache.cache_entry import SUFFIX
from ipu_tf.device.cache.sealed_file import check_trusted
from ipu_tf.device.cache.whole_file import TEMPORARY
from ipu_tf.device.errors import DeviceError

_OWNER_ONLY = 0o700
_ABANDONED_SECONDS = 3600


class CacheFolderError(DeviceError, ValueError):
    """Raised if the configured cache folder cannot be used."""


def prepare(folder: Path) -> None:
    """Creates the cache folder if it is missing, and removes old temporary files of killed writers.

    Args:
        folder: where entries are to be kept. It may be one that can only be read.

    Raises:
        CacheFolderError: if it is no folder, or cannot be made.
        UntrustedFile: if others than this user can write to it.
    """
    try:
        folder.mkdir(_OWNER_ONLY, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        raise CacheFolderError(
            f"The executable cache must be a folder, or a place where one can be made. Received: '{folder}' ({error})."
        ) from error
    check_trusted(folder, status)
    _sweep(folder)


def make_room(path: Path) -> None:
    """Renames a folder that has the name of an entry; its contents are kept.

    Raises:
        OSError: if it cannot be renamed.
    """
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}.{uuid.uuid4().hex}.set_aside"))


def evict(folder: Path, limit: int) -> None:
    """Removes the entries that were not used for longest until the others have at most `limit` bytes together.

    Several processes may do so at the same time. One that reads an entry meanwhile reads all of it.
    """
    found = sorted(_entries(folder))
    excess = sum(size for _, size, _ in found) - limit
    for _, size, path in found:
        if excess <= 0:
            return
        try:
            path.unlink()
        except FileNotFoundError:
            pass  # another process removed it
        except OSError:
            continue
        excess -= size


def touch(path: Path) -> None:
    """Marks an entry as used now."""
    with contextlib.suppress(OSError):  # removed by another process, or in a folder that can only be read
        os.utime(path)


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yields when each entry of a folder was last used, its bytes, and its path."""
    for path in folder.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):  # another process removed it
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                yield status.st_mtime, status.st_size, path


def _sweep(folder: Path) -> None:
    for path in folder.glob(f"*{TEMPORARY}"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
        except OSError:
            continue  # another process swept it first, or the folder can only be read
