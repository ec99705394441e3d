"""A compiled program as a file of an open format, which JAX alone can load and run.

    ipu_tf executable 1 sha256=... (emulated IPU: no popef, no IPU can run it)     one line
    executable.json        what the program takes and gives, and its parts         a zip archive from here on
    part_0.run, ...        each part as `jax.export` serializes it: StableHLO
    weights/3.npy, ...     values of parameters that were frozen

A program is a list of parts over numbered slots; its parameters are the first slots. A part of kind "straight" is one
function; one of kind "loop" is a step, and a function that says whether the loop goes on. Parts thread a dictionary of
hidden state, such as the seed of random ops. With `slots` filled with the parameters, this is all there is to running
one, given `element(queue)`, which gives the next tuple of arrays of an infeed, and `give(queue, rows)`:

    archive = zipfile.ZipFile(path)                       # skips the first line by itself
    about = json.loads(archive.read("executable.json"))
    call = lambda name, *args: jax.export.deserialize(bytearray(archive.read(name))).call(*args)
    hidden = {key: jnp.zeros(t["shape"], t["dtype"]) for key, t in about["hidden"].items()}
    for part in about["parts"]:
        read = lambda names: tuple(slots[i] for i in part[names])
        if part["kind"] == "straight":
            out, hidden, rows = call(part["run"], read("in"), hidden, {q: element(q) for q in part["infeeds"]})
            give(rows)
        else:
            out, constants = read("in"), read("constants")
            while call(part["goes_on"], out, constants):
                elements = {q: element(q) for q in part["infeeds"]}
                out, hidden, rows = call(part["step"], out, constants, hidden, elements)
                give(rows)
        slots.update(zip(part["out"], out))
    results = [slots[i] for i in about["results"]]

64-bit numbers need `jax.config.update("jax_enable_x64", True)`. A row of a queue in "sometimes" starts with a flag that
says whether it was given. `tests/ipu_tf/device/test_executable_file.py` does it so.
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import export

from ipu_tf.device.cache.sealed_file import read_sealed, write_sealed
from ipu_tf.device.convolution import onednn
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.memory.hidden_state import ITERATION
from ipu_tf.device.program.program import Arrays, Hidden, LoopPart, Part, Program, Rows, Types

SUFFIX = ".ipu_exec"
"""How the name of such a file ends, unless somebody names it otherwise."""
_KIND = "executable"
_ABOUT = "executable.json"


class ExportError(DeviceError, NotImplementedError):
    """A program cannot be kept as a file."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """What a program takes or gives.

    Attributes:
        name: what it is called.
        shape: its dimensions.
        dtype: the name of its dtype, as numpy or ml_dtypes has it.
        place: the parameter or result it is, or for a stream the queue it belongs to.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    place: int | str

    @property
    def struct(self) -> jax.ShapeDtypeStruct:
        """Its shape and dtype for JAX."""
        return jax.ShapeDtypeStruct(self.shape, np.dtype(jax.numpy.dtype(self.dtype)))


@dataclasses.dataclass(frozen=True)
class Signature:
    """What a program takes and gives.

    Attributes:
        inputs: parameters that are given once, when the program is started.
        streamed_inputs: the tensors of each infeed's elements.
        outputs: the program's results, new values of variables among them.
        streamed_outputs: the tensors of each outfeed's rows.
    """

    inputs: tuple[Tensor, ...]
    streamed_inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    streamed_outputs: tuple[Tensor, ...]


@dataclasses.dataclass(frozen=True)
class ExecutableFile:
    """A program that was read.

    Attributes:
        name: the program's name.
        signature: what it takes and gives.
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


def contents(
    program: Program, weights: Mapping[int, np.ndarray] | None = None, names: Mapping[int, str] | None = None
) -> bytes:
    """A program as what such a file holds.

    Args:
        program: the program, for one replica.
        weights: values of the parameters, by index, that become part of the file.
        names: of the other parameters, by index.

    Raises:
        ExportError: if the program calls back to the host, has several replicas, or uses what JAX cannot export.
    """
    _check(program)
    functions: dict[str, bytes] = {}
    parts: list[dict[str, Any]] = []
    slots: dict[int, Any] = dict(enumerate(program.parameters))
    with jax.enable_x64(True):
        for index, part in enumerate(program.parts):
            parts.append(_export_part(f"part_{index}", part, program, slots, functions))
    about = {
        "format": 1,
        "name": program.name,
        "jax": jax.__version__,
        "platform": jax.default_backend(),
        **_described(program, slots, weights or {}, names or {}),
        "hidden": {key: _struct_text(struct) for key, struct in program.hidden.items()},
        "parts": parts,
        "results": list(program.results),
        "aliases": {str(result): parameter for result, parameter in program.aliases.items()},
        "checked": list(program.checked),
        "weights": {str(parameter): f"weights/{parameter}.npy" for parameter in weights or {}},
    }
    return _archive(about, functions, weights or {})


def write(path: str | os.PathLike[str], payload: bytes) -> None:
    """Writes what `contents` gave as a file, which appears when it is whole.

    Raises:
        OSError: if it cannot be written there.
    """
    write_sealed(path, _KIND, payload)


def read(path: str | os.PathLike[str]) -> ExecutableFile:
    """The program in a file.

    Raises:
        FileNotFoundError: if there is no such file.
        ForeignFile: if it is no such file; a popef for instance, which only an IPU can run.
        DamagedFile: if it is not as it was written.
    """
    with zipfile.ZipFile(io.BytesIO(read_sealed(path, _KIND))) as archive:
        about = json.loads(archive.read(_ABOUT))
        weights = {int(index): _loaded(archive.read(name)) for index, name in about["weights"].items()}
        names = {part[role] for part in about["parts"] for role in ("run", "step", "goes_on") if role in part}
        functions = {name: export.deserialize(bytearray(archive.read(name))) for name in names}
    return ExecutableFile(
        name=about["name"],
        signature=signature_of(about),
        weights={index: _as(array, about["frozen"][str(index)]) for index, array in weights.items()},
        parts=tuple(about["parts"]),
        functions=functions,
        results=tuple(about["results"]),
        aliases={int(result): parameter for result, parameter in about["aliases"].items()},
        hidden={key: _struct(text) for key, text in about["hidden"].items()},
        checked=tuple(about["checked"]),
    )


def about_text(path: str | os.PathLike[str]) -> bytes:
    """What the file says about its program, as JSON; see `read` for what it raises."""
    with zipfile.ZipFile(io.BytesIO(read_sealed(path, _KIND))) as archive:
        return archive.read(_ABOUT)


def signature_of(about: Mapping[str, Any]) -> Signature:
    """The signature in what a file says about its program."""
    return Signature(
        *(
            tuple(Tensor(t["name"], tuple(t["shape"]), t["dtype"], t["place"]) for t in about[role])
            for role in ("inputs", "streamed_inputs", "outputs", "streamed_outputs")
        )
    )


def _check(program: Program) -> None:
    if program.replicas > 1:
        raise ExportError(
            f"'{program.name}' has {program.replicas} replicas. An executable file holds a program for one replica: "
            "configure a device with as many IPUs as the program has shards or pipeline stages."
        )
    if program.uses_callbacks:
        raise ExportError(
            f"'{program.name}' calls back to this process while it runs: it prints, looks up tables on the host, or "
            "uses a queue in a loop or branch inside of another loop. A file cannot hold that: use queues straight in "
            "the body of an outermost loop."
        )


def _export_part(
    name: str, part: Part, program: Program, slots: dict[int, Any], functions: dict[str, bytes]
) -> dict[str, Any]:
    """Exports a part's functions, and gives its description; the slots it fills get their types."""
    hidden = dict(program.hidden)
    feeds = {"infeeds": sorted(part.infeeds), "outfeeds": sorted(part.outfeeds)}
    if isinstance(part, LoopPart):
        carry, constants = (tuple(slots[s] for s in names) for names in (part.carry_in, part.constants))
        functions[f"{name}.step"], results = _exported(_counting(part), carry, constants, hidden, dict(part.infeeds))
        functions[f"{name}.goes_on"], _ = _exported(part.goes_on, carry, constants)
        slots.update((s, t) for s, t in zip(part.carry_out, results[0], strict=True) if s is not None)
        return {
            "kind": "loop",
            "step": f"{name}.step",
            "goes_on": f"{name}.goes_on",
            "in": list(part.carry_in),
            "constants": list(part.constants),
            "out": list(part.carry_out),
            "sometimes": sorted(part.sometimes),
            **feeds,
        }
    live = tuple(slots[s] for s in part.live_in)
    functions[f"{name}.run"], results = _exported(part.run, live, hidden, dict(part.infeeds))
    slots.update(zip(part.live_out, results[0], strict=True))
    return {
        "kind": "straight",
        "run": f"{name}.run",
        "in": list(part.live_in),
        "out": list(part.live_out),
        "sometimes": [],
        **feeds,
    }


def _counting(part: LoopPart) -> Any:
    """A loop's step that counts its iterations where anything asks for their number."""

    def step(carry: Arrays, constants: Arrays, hidden: Hidden, elements: Rows) -> tuple[Arrays, Hidden, Rows]:
        carry, hidden, rows = part.step(carry, constants, hidden, elements)
        if ITERATION in hidden:
            hidden = {**hidden, ITERATION: hidden[ITERATION] + 1}
        return carry, hidden, rows

    return step


def _exported(function: Any, *arguments: Any) -> tuple[bytes, Any]:
    """A function serialized, and the shapes and dtypes of its results."""
    try:
        exported = export.export(jax.jit(onednn.portable(function)))(*arguments)
        blob = bytes(exported.serialize())
    except (NotImplementedError, ValueError) as error:
        raise ExportError(f"JAX cannot export it: {error}") from error
    types = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.out_avals]
    return blob, jax.tree.unflatten(exported.out_tree, types)


def _described(
    program: Program, slots: Mapping[int, Any], weights: Mapping[int, np.ndarray], names: Mapping[int, str]
) -> dict[str, Any]:
    inputs = [i for i in range(len(program.parameters)) if i not in weights]
    infeeds: dict[str, Types] = {}
    outfeeds: dict[str, Types] = {}
    for part in program.parts:
        infeeds |= part.infeeds
        outfeeds |= part.outfeeds
    return {
        "inputs": [_tensor(names.get(i, f"input_{i}"), program.parameters[i], i) for i in inputs],
        "streamed_inputs": [_tensor(f"{q}.{i}", t, q) for q, row in infeeds.items() for i, t in enumerate(row)],
        "outputs": [_tensor(f"output_{i}", slots[slot], i) for i, slot in enumerate(program.results)],
        "streamed_outputs": [_tensor(f"{q}.{i}", t, q) for q, row in outfeeds.items() for i, t in enumerate(row)],
        "frozen": {str(i): _struct_text(program.parameters[i]) for i in weights},
    }


def _archive(about: Mapping[str, Any], functions: Mapping[str, bytes], weights: Mapping[int, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name), data)  # without the time, so that equal programs give equal files

        add(_ABOUT, json.dumps(about, indent=1).encode())
        for name, blob in functions.items():
            add(name, blob)
        for index, array in weights.items():
            add(f"weights/{index}.npy", _saved(array))
    return stream.getvalue()


def _tensor(name: str, struct: Any, place: int | str) -> dict[str, Any]:
    return {"name": name, **_struct_text(struct), "place": place}


def _struct_text(struct: Any) -> dict[str, Any]:
    return {"shape": list(struct.shape), "dtype": np.dtype(struct.dtype).name}


def _struct(text: Mapping[str, Any]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(text["shape"]), jax.numpy.dtype(text["dtype"]))


def _saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    # Numpy's format has no bfloat16 and the like: their bytes are kept, and the JSON says what they are.
    np.save(stream, np.asarray(array) if np.asarray(array).dtype.kind != "V" else np.asarray(array).view(np.void))
    return stream.getvalue()


def _loaded(data: bytes) -> np.ndarray:
    array: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
    return array


def _as(array: np.ndarray, text: Mapping[str, Any]) -> np.ndarray:
    struct = _struct(text)
    return array if array.dtype == struct.dtype else array.view(struct.dtype).reshape(struct.shape)


def parameters_of(file: ExecutableFile, inputs: Sequence[Any]) -> dict[int, Any]:
    """The parameters of a program, by index: its weights, and these inputs."""
    return {**file.weights, **{int(t.place): value for t, value in zip(file.signature.inputs, inputs, strict=True)}}
