"""Format of a checkpoint: an HDF5 file that stock Keras reads weights from, sealed by a line in its user block.

    0     ipu_tf checkpoint 1 sha256=4f... length=1234 (...)\n and zeros      the seal, over everything behind the line
    512   HDF5   /layers, /optimizer, ...     as `model.save_weights` writes them
                 /ipu_tf/state                JSON, in UTF-8
                 /ipu_tf/arrays/<number>      the arrays that the JSON names; hard links where Keras's are the same

HDF5 leaves the first 512 bytes of a file to its users.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Mapping
from typing import Any

import h5py
import ml_dtypes
import numpy as np

from ipu_tf._checkpoints.plain_data import decoded, encoded
from ipu_tf.device.cache.sealed_file import DamagedFile, header_bytes, read_sealed, write_sealed

KIND, VERSION = "checkpoint", 1
_USER_BLOCK = 512
_STATE, _ARRAYS = "ipu_tf/state", "ipu_tf/arrays"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Attributes:
        state: plain data, as `plain_data.encoded` takes it; arrays are in it.
        weights: arrays that stock Keras is to find, by their paths in the file. Those that are arrays of `state`
            themselves are written once. Not read.
    """

    state: Any
    weights: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint) -> None:
    """Writes a checkpoint: beside the file that may be there, synced, then renamed.

    Args:
        path: where.
        checkpoint: what to write.

    Raises:
        OSError: if it cannot be written. Nothing is left of it then.
        NotPlainError: for a state that is no plain data.
    """
    image = io.BytesIO()
    arrays: list[np.ndarray] = []
    text = json.dumps(encoded(checkpoint.state, arrays)).encode()
    with h5py.File(image, "w", userblock_size=_USER_BLOCK) as file:
        written = {id(array): _add(file, name, array) for name, array in checkpoint.weights.items()}
        file.create_group(_ARRAYS)
        for number, array in enumerate(arrays):
            name = f"{_ARRAYS}/{number}"
            if id(array) in written:
                file[name] = written[id(array)]  # a hard link
            else:
                _add(file, name, array)
        file[_STATE] = np.frombuffer(text, np.uint8)
    write_sealed(path, KIND, behind_seal(image.getvalue()), VERSION)


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint whose every byte is as it was written.

    Args:
        path: the file.

    Raises:
        OSError: if it cannot be read; FileNotFoundError if there is none.
        DamagedFile, ForeignFile: if it is no whole checkpoint of this version.
    """
    payload = read_sealed(path, KIND, VERSION)
    try:
        image = io.BytesIO(bytes(seal_length(len(payload))) + payload)
        with h5py.File(image, "r") as file:
            group = file[_ARRAYS]
            arrays = [_read(group[str(number)]) for number in range(len(group))]
            return Checkpoint(decoded(json.loads(file[_STATE][()].tobytes()), arrays))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise DamagedFile(f"'{path}' is sealed, but holds no checkpoint: {error}.") from error


def seal_length(length: int) -> int:
    """Returns the length of the seal of a payload of so many bytes."""
    return len(header_bytes(KIND, VERSION, "0" * hashlib.sha256().digest_size * 2, length))


def behind_seal(image: bytes) -> bytes:
    """Returns what follows the seal; the seal takes the place of the zeros in front."""
    seal = seal_length(len(image) - seal_length(len(image)))
    if seal_length(len(image) - seal) == seal:
        return image[seal:]
    return behind_seal(image + b"\0")  # one digit more and one byte less: no length is right


def _add(file: Any, name: str, array: np.ndarray) -> Any:
    """Adds a dataset, as Keras does; HDF5 does not know bfloat16, whose name Keras looks for in an attribute."""
    dataset = file.create_dataset(name, data=array)
    if array.dtype.kind not in "biufc":
        dataset.attrs["dtype"] = array.dtype.name
    return dataset


def _read(dataset: Any) -> np.ndarray:
    array = np.asarray(dataset[()])
    name = dataset.attrs.get("dtype")
    return array if name is None else array.view(getattr(ml_dtypes, name))
