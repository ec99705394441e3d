"""Creates and checks the folder of the executable cache: private to the user, refused if others can write to it."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

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


def _sweep(folder: Path) -> None:
    for path in folder.glob(f"*{TEMPORARY}"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                path.unlink()
        except OSError:
            continue  # another process swept it first, or the folder can only be read
