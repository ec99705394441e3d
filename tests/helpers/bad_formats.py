"""Deliberately faulty file readers, with which tests check that `file_fuzz` finds faults."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.file_formats import Format


def _files(folder: Path) -> Sequence[bytes]:
    return [pickle.dumps(1.0), pickle.dumps(2.0)]


def _trapped(data: bytes, other: bytes, generator: np.random.Generator) -> bytes:
    """A pickle that makes a file when it is read."""

    class Touching:
        def __reduce__(self) -> Any:
            return os.mkdir, ("/nowhere/at/all",)

    return pickle.dumps(Touching())


def _one_in_three_crashes(data: bytes, path: Path) -> Any:
    if len(data) % 3 == 0 and data not in _files(path):
        os.abort()
    return 1


FORMATS = {
    "crash": Format(_files, _one_in_three_crashes),
    "code": Format(_files, lambda data, path: pickle.loads(data), _trapped),
    "wrong": Format(_files, lambda data, path: data.hex()),
    "unexpected": Format(_files, lambda data, path: {bytes(one): 0 for one in _files(path)}[data]),
}
