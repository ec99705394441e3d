"""`save` and `load`: reports as files, a checksummed header and compressed JSON; no code is in them.

ipu_tf report 1 sha256=... length=...
<zlib: JSON of the `Report`>
"""

from __future__ import annotations

import json
import os
import zlib

from ipu_tf.device.cache.sealed_file import DamagedFile, ForeignFile, read_sealed, write_sealed
from ipu_tf.reports.codec import decode, encode
from ipu_tf.reports.report import Report

_KIND = "report"
_MOST_BYTES = 1 << 28
"""What a file may hold, once it is uncompressed."""


def save(report: Report, path: str | os.PathLike[str]) -> None:
    """Writes a report to a file, atomically.

    Args:
        report: the report.
        path: where, such as `profile.pop`; a file there is replaced. Its folder must exist.

    Raises:
        OSError: if it cannot be written.
    """
    text = json.dumps(encode(report), separators=(",", ":"), allow_nan=False)
    write_sealed(path, _KIND, zlib.compress(text.encode()))


def load(path: str | os.PathLike[str]) -> Report:
    """Returns the report of a file that `save` or `autoReport` wrote.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if there is none.
        ValueError: if it is damaged, or is no report of this package, such as one that Poplar wrote.
    """
    try:
        payload = read_sealed(path, _KIND)
    except ForeignFile as error:
        raise ForeignFile(
            f"'{os.fspath(path)}' must be a report of ipu_tf. Received: another file. Reports that Poplar wrote are "
            "about IPU hardware and cannot be read; write one with `ipu_tf.reports.save` or `autoReport.all`."
        ) from error
    try:
        report: Report = decode(Report, json.loads(_uncompressed(payload)))
    except (ValueError, zlib.error, RecursionError) as error:
        raise DamagedFile(f"'{os.fspath(path)}' is damaged: it is no report. Write it again. ({error})") from error
    return report


def _uncompressed(payload: bytes) -> bytes:
    reader = zlib.decompressobj()
    data = reader.decompress(payload, _MOST_BYTES)
    if reader.unconsumed_tail or not reader.eof:
        raise ValueError(f"Expected at most {_MOST_BYTES} bytes that are whole. Received: more, or less.")
    return data
