"""Reads untrusted zip archives of byte strings and NumPy arrays, with checks of sizes and checksums; no pickle.

Nothing is unpickled, nothing is unpacked beyond the size of the file, and every member is checked against its checksum.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from typing import IO, BinaryIO

import numpy as np

from ipu_tf.device.cache.sealed_file import DamagedFile

_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Archive:
    """Zip archive opened for reading.

    Args:
        file: the archive, open as long as this is used.
        called: its name in errors.

    Raises:
        DamagedFile: if it is no zip archive; if members are compressed, encrypted, of the same name, or overlap.
    """

    def __init__(self, file: BinaryIO, called: str) -> None:
        self._called = called
        size = file.seek(0, os.SEEK_END)
        try:
            self._zip = zipfile.ZipFile(file)
            infos = self._zip.infolist()
        except Exception as error:  # noqa: BLE001 - zipfile raises whatever it stumbles over
            raise self._damaged(f"it is no zip archive ({error})") from error
        if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in infos):
            raise self._damaged("its members must be stored as they are, neither compressed nor encrypted")
        self.names = frozenset(info.filename for info in infos)
        if len(self.names) != len(infos) or sum(info.file_size for info in infos) > size:
            raise self._damaged("its members overlap, or have the same name")

    def read(self, name: str) -> bytes:
        """Reads a member as bytes.

        Raises:
            DamagedFile: if there is none of that name, or it is not as it was written.
        """
        try:
            return self._zip.read(name)
        except Exception as error:  # noqa: BLE001 - as above
            raise self._damaged(f"'{name}' in it cannot be read ({type(error).__name__}: {error})") from error

    def array(self, name: str) -> np.ndarray:
        """Reads a member that is an array in NumPy's `.npy` format.

        Raises:
            DamagedFile: if there is no such, or it is an array of Python objects.
        """
        try:
            return array_of(self.read(name))
        except ValueError as error:
            raise self._damaged(f"'{name}' in it is no array ({error})") from error

    def _damaged(self, why: str) -> DamagedFile:
        return DamagedFile(f"'{self._called}' is damaged: {why}. Write it again.")


def array_of(data: bytes) -> np.ndarray:
    """Parses an array in NumPy's `.npy` format, as `np.load` does, but never from a pickle.

    Raises:
        ValueError: if it is none, holds Python objects, or has another length than its shape says.
    """
    stream = io.BytesIO(data)
    try:
        shape, in_fortran_order, dtype = _READERS[np.lib.format.read_magic(stream)](stream)
    except Exception as error:  # noqa: BLE001 - the header is parsed as Python
        raise ValueError(f"its header is not numpy's: {type(error).__name__}: {error}") from error
    start = stream.tell()
    if dtype.hasobject or dtype.subdtype or any(not isinstance(size, int) or size < 0 for size in shape):
        raise ValueError(f"it says that it has the dtype {dtype} and the shape {shape}")
    if start + math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError(f"{len(data) - start} bytes are not an array of {dtype} with the shape {shape}")
    array: np.ndarray = np.ndarray(shape, dtype, data, start, order="F" if in_fortran_order else "C")
    return array.copy(order="K")


def write_array(file: IO[bytes], array: np.ndarray) -> None:
    """Writes an array in NumPy's `.npy` format.

    Raises:
        ValueError: for an array of Python objects, such as strings of different lengths.
    """
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
