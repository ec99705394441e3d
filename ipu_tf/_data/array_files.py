"""Named arrays in one file: numpy's `.npz`, with dtypes that numpy does not know kept by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

_DTYPES = "dtypes.json"


def write_arrays(filename: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to a file, under names; the file is written anew.

    Args:
        filename: the file.
        arrays: arrays by name.
    """
    dtypes = json.dumps({name: array.dtype.name for name, array in arrays.items()})
    stored: dict[str, Any] = {name: _plain(array) for name, array in arrays.items()}
    stored[_DTYPES] = np.frombuffer(dtypes.encode(), np.uint8)
    with open(filename, "wb") as file:
        np.savez(file, **stored)


def read_arrays(filename: str) -> dict[str, np.ndarray]:
    """The arrays of a file that `write_arrays` wrote, by name.

    Args:
        filename: the file.

    Raises:
        ValueError: if the file is another one.
        FileNotFoundError: if there is no such file.
    """
    with np.load(filename) as file:
        if _DTYPES not in file.files:
            raise ValueError(f"{filename} was not written by this package. Write it with export_variables.")
        dtypes = json.loads(bytes(file[_DTYPES]).decode())
        return {name: file[name].view(_dtype(text)) for name, text in dtypes.items()}


def _plain(array: np.ndarray) -> np.ndarray:
    """An array that numpy can store by itself, of the same bytes."""
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def _dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, None) or name)
