"""Reads executable files (`.ipu_exec`), and validates their contents before anything is compiled or run.

The checksum of such a file detects damage, not forgery. A program from elsewhere may compute without end or fill the
memory, but it calls no native code except known functions of linear algebra, on arrays that fit them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from ipu_tf.device.cache.sealed_file import DamagedFile, read_sealed
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.files.archive import Archive
from ipu_tf.device.files.custom_calls import unknown_calls
from ipu_tf.device.files.executable_about import Signature, function_names, parsed, signature_of, struct_of
from ipu_tf.device.files.executable_file import ABOUT, KIND
from ipu_tf.device.files.module_parser import PARSER


class UnsafeProgram(DeviceError, ValueError):
    """Raised if a program in a file has operations that exported programs never have."""


@dataclasses.dataclass(frozen=True)
class ExecutableFile:
    """Program that was read from a file.

    Attributes:
        name: the program's name.
        signature: its inputs and outputs.
        weights: values of the parameters that were frozen.
        parts: the parts, as the file describes them.
        functions: the function behind each name that a part uses, from `jax.export`.
        results: slots of the results.
        aliases: result index -> parameter index, where a result is the new value of a variable.
        hidden: shape and dtype of each piece of hidden state.
        checked: the operations that are checked for floating-point exceptions; see `ipu_tf.device.numerics.exceptions`.
    """

    name: str
    signature: Signature
    weights: Mapping[int, np.ndarray]
    parts: tuple[dict[str, Any], ...]
    functions: Mapping[str, Any]
    results: tuple[int, ...]
    aliases: Mapping[int, int]
    hidden: Mapping[str, jax.ShapeDtypeStruct]
    checked: tuple[str, ...]


def read(path: str | os.PathLike[str]) -> ExecutableFile:
    """Reads and validates the program in a file.

    Raises:
        FileNotFoundError: if there is no such file.
        ForeignFile: if it is no such file; a popef for instance, which only an IPU can run.
        DamagedFile: if it is not as it was written.
        UnsafeProgram: if it calls native functions other than those that this project's programs call.
    """
    archive = _opened(path)
    try:
        about = parsed(archive.read(ABOUT))
        weights = {int(index): archive.array(name) for index, name in about["weights"].items()}
        weights = {index: _as(array, about["frozen"][str(index)]) for index, array in weights.items()}
        functions = {name: _function(archive.read(name), path) for name in function_names(about)}
    except DeviceError:
        raise
    except Exception as error:  # noqa: BLE001 - parsers raise whatever they stumble over
        what = f"{type(error).__name__}: {error}"
        raise DamagedFile(f"'{os.fspath(path)}' is damaged: {what}. Write it again.") from error
    return ExecutableFile(
        name=about["name"],
        signature=signature_of(about),
        weights=weights,
        parts=tuple(about["parts"]),
        functions=functions,
        results=tuple(about["results"]),
        aliases={int(result): parameter for result, parameter in about["aliases"].items()},
        hidden={key: struct_of(text) for key, text in about["hidden"].items()},
        checked=tuple(about["checked"]),
    )


def about_text(path: str | os.PathLike[str]) -> bytes:
    """Reads the JSON description of a program in a file; raises the errors of `read`."""
    return _opened(path).read(ABOUT)


def digest_of(path: str | os.PathLike[str]) -> bytes:
    """Returns a digest of a whole program, its functions and weights among it; raises the errors of `read`."""
    return hashlib.sha256(read_sealed(path, KIND)).digest()


def parameters_of(file: ExecutableFile, inputs: Sequence[Any]) -> dict[int, Any]:
    """Returns the parameters of a program by index: its weights, and these inputs."""
    return {**file.weights, **{int(t.place): value for t, value in zip(file.signature.inputs, inputs, strict=True)}}


def _opened(path: str | os.PathLike[str]) -> Archive:
    return Archive(io.BytesIO(read_sealed(path, KIND)), os.fspath(path))


def _function(blob: bytes, path: str | os.PathLike[str]) -> export.Exported:
    """Deserializes an exported function after a check of its operations."""
    exported = export.deserialize(bytearray(blob))
    operations, module = PARSER.parsed(exported.mlir_module_serialized)
    unknown = unknown_calls(operations, exported.platforms)
    others = (*exported.ordered_effects, *exported.unordered_effects, *exported.disabled_safety_checks)
    if unknown or others or exported.nr_devices != 1:
        raise UnsafeProgram(
            f"'{os.fspath(path)}' is not run: its programs may call known functions of linear algebra on one device, "
            f"and nothing else. Received: {unknown or [*map(str, others)] or f'{exported.nr_devices} devices'}."
        )
    return dataclasses.replace(exported, mlir_module_serialized=module)


def _as(array: np.ndarray, text: Mapping[str, Any]) -> np.ndarray:
    struct = struct_of(text)
    if array.dtype != struct.dtype:
        array = array.view(struct.dtype)
    if array.shape != struct.shape:
        raise ValueError(f"a weight must have the shape {struct.shape}. Received: {array.shape}")
    return array
