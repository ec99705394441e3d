"""Members of ZIP archives, read and written again: what tests of damaged and forged files change."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping


def members(archive: bytes) -> dict[str, bytes]:
    """Returns the contents of an archive by name."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def archived(contents: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Returns an archive with such members and checksums that fit."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as made:
        for name, content in contents.items():
            made.writestr(name, content)
    return stream.getvalue()
