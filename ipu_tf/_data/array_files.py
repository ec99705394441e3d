"""Reads and writes named arrays as NumPy `.npz` files, with dtypes that NumPy lacks (bfloat16, ...).

`np.load` reads it. A member `dtypes.json` says of each array its dtype, and a checksum over its name, dtype, shape and
values: so an array that was damaged, or has come under another name, is not taken for what was written.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from ipu_tf.device.cache.sealed_file import DamagedFile
from ipu_tf.device.cache.whole_file import write_whole
from ipu_tf.device.files.archive import Archive, write_array

_DTYPES = "dtypes.json"
_SUFFIX = ".npy"


def write_arrays(filename: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes named arrays to a file, replacing an existing one atomically.

    Args:
        filename: the file.
        arrays: arrays by name.

    Raises:
        ValueError: for an array of Python objects.
        OSError: if it cannot be written.
    """
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise ValueError(f"Arrays in a file are of numbers or booleans. Received: '{name}' of Python objects.")
    about = {name: {"dtype": _word(array.dtype), "sha256": _digest(name, array)} for name, array in arrays.items()}
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)

    def write(file: BinaryIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, array in {**arrays, _DTYPES: text}.items():
                with archive.open(name + _SUFFIX, "w", force_zip64=True) as member:
                    write_array(member, _plain(array))

    write_whole(filename, write)


def read_arrays(filename: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a file that `write_arrays` wrote, by name.

    Args:
        filename: the file.

    Raises:
        ValueError: if the file is another one; DamagedFile, which is one, if it is not as it was written.
        FileNotFoundError: if there is no such file.
    """
    with open(filename, "rb") as file:
        archive = Archive(file, os.fspath(filename))
        if _DTYPES + _SUFFIX not in archive.names:
            raise ValueError(f"{filename} was not written by this package. Write it with export_variables.")
        about = _about(archive.array(_DTYPES + _SUFFIX), filename)
        if archive.names != {name + _SUFFIX for name in (*about, _DTYPES)}:
            raise _damaged(filename, "it has other arrays than it says")
        return {name: _checked(name, archive.array(name + _SUFFIX), said, filename) for name, said in about.items()}


def _about(text: np.ndarray, filename: Any) -> dict[str, dict[str, str]]:
    """Describes the arrays of a file. Files without checksums have only the dtypes."""
    try:
        about = json.loads(text.tobytes())
        said = {name: {"dtype": one} if isinstance(one, str) else one for name, one in about.items()}
        if all(isinstance(word, str) for one in said.values() for word in (one["dtype"], *one.values())):
            return said
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        pass
    raise _damaged(filename, "what it says of its arrays cannot be read")


def _checked(name: str, plain: np.ndarray, said: Mapping[str, str], filename: Any) -> np.ndarray:
    dtype = _dtype(said["dtype"])
    if dtype is None or dtype.itemsize != plain.dtype.itemsize:
        raise _damaged(filename, f"'{name}' cannot be of the dtype {said['dtype']!r}")
    array = plain.view(dtype)
    if "sha256" in said and said["sha256"] != _digest(name, array):
        raise _damaged(filename, f"'{name}' has other values than were written")
    return array


def _digest(name: str, array: np.ndarray) -> str:
    digest = hashlib.sha256(json.dumps([name, _word(array.dtype), array.shape]).encode())
    if array.size:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def _plain(array: np.ndarray) -> np.ndarray:
    """Views an array in a dtype that NumPy can store, with the same bytes."""
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def _word(dtype: np.dtype) -> str:
    """Spells a dtype as text that `_dtype` parses; those of byte strings and text have a length."""
    return dtype.str if dtype.kind in "SU" else dtype.name


def _dtype(name: str) -> np.dtype | None:
    """Parses a dtype's name; None if its values are not plain bytes."""
    scalar = getattr(ml_dtypes, name, None)
    try:
        dtype = np.dtype(scalar if isinstance(scalar, type) and issubclass(scalar, np.generic) else name)
    except (TypeError, ValueError, SyntaxError):
        return None
    return None if dtype.hasobject or dtype.fields or dtype.subdtype else dtype


def _damaged(filename: Any, why: str) -> DamagedFile:
    return DamagedFile(f"'{os.fspath(filename)}' is damaged: {why}. Write it again.")
