"""Writes executable files (`.ipu_exec`): compiled programs that JAX alone can load and run.

    ipu_tf executable 1 sha256=... (emulated IPU: no popef, no IPU can run it)     one line
    executable.json        inputs, outputs and parts of the program                a zip archive from here on
    part_0.run, ...        each part as `jax.export` serializes it: StableHLO
    weights/3.npy, ...     values of parameters that were frozen

A program is a list of parts over numbered slots; its parameters are the first slots. A part of kind "straight" is one
function; one of kind "loop" is a step, and a function that says whether the loop goes on. Parts thread a dictionary of
hidden state, such as the seed of random ops. With `slots` filled with the parameters, this is all there is to running
one, given `element(queue)`, which gives the next tuple of arrays of an infeed, and `give(enqueued)`, which takes such
a tuple for each outfeed:

    archive = zipfile.ZipFile(path)                       # skips the first line by itself
    about = json.loads(archive.read("executable.json"))
    call = lambda name, *args: jax.export.deserialize(bytearray(archive.read(name))).call(*args)
    hidden = {key: jnp.zeros(t["shape"], t["dtype"]) for key, t in about["hidden"].items()}
    for part in about["parts"]:
        read = lambda names: tuple(slots[i] for i in part[names])
        if part["kind"] == "straight":
            out, hidden, enqueued = call(part["run"], read("in"), hidden, {q: element(q) for q in part["infeeds"]})
            give(enqueued)
        else:
            out, constants = read("in"), read("constants")
            while call(part["goes_on"], out, constants):
                elements = {q: element(q) for q in part["infeeds"]}
                out, hidden, enqueued = call(part["step"], out, constants, hidden, elements)
                give(enqueued)
        slots.update(zip(part["out"], out))
    results = [slots[i] for i in about["results"]]

64-bit numbers need `jax.config.update("jax_enable_x64", True)`. An element of a queue in "sometimes" starts with a flag
that says whether it was enqueued. `tests/ipu_tf/device/files/test_executable_file.py` does it so.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax import export

from ipu_tf.device import portable
from ipu_tf.device.cache.sealed_file import write_sealed
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.files.archive import write_array
from ipu_tf.device.files.custom_calls import unknown_calls
from ipu_tf.device.files.exported_module import operations
from ipu_tf.device.files.module_parser import PARSER
from ipu_tf.device.memory.hidden_state import ITERATION
from ipu_tf.device.program.program import Arrays, Elements, Hidden, LoopPart, Part, Program, Types

SUFFIX = ".ipu_exec"
"""Default suffix of such a file."""
KIND = "executable"
"""Kind of file, as the first line has it."""
ABOUT = "executable.json"
"""The member that describes the program."""


class ExportError(DeviceError, NotImplementedError):
    """Raised if a program cannot be exported to a file."""


def contents(
    program: Program, weights: Mapping[int, np.ndarray] | None = None, names: Mapping[int, str] | None = None
) -> bytes:
    """Serializes a program to the contents of an executable file.

    Args:
        program: the program, for one replica.
        weights: values of the parameters, by index, that become part of the file.
        names: of the other parameters, by index.

    Raises:
        ExportError: if the program calls back to the host, asserts something, has several replicas, or uses what
            JAX cannot export or what `read` would refuse.
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
    """Writes the result of `contents` to a file, atomically.

    Raises:
        OSError: if it cannot be written there.
    """
    write_sealed(path, KIND, payload)


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
    if program.checks:
        origins = ", ".join(f"`{check.origin}`" for check in program.checks.values())
        raise ExportError(
            f"'{program.name}' asserts ({origins}), and what runs a file cannot raise what an assertion says. "
            "Export it without: a failing assertion would go unnoticed."
        )


def _export_part(
    name: str, part: Part, program: Program, slots: dict[int, Any], functions: dict[str, bytes]
) -> dict[str, Any]:
    """Exports a part's functions, and returns its description; records the types of the slots that it fills."""
    feeds = {"infeeds": sorted(part.infeeds), "outfeeds": sorted(part.outfeeds)}
    if isinstance(part, LoopPart):
        return _export_loop(name, part, program, slots, functions) | feeds
    live = tuple(slots[s] for s in part.live_in)
    functions[f"{name}.run"], results = _exported(part.run, live, dict(program.hidden), dict(part.infeeds))
    slots.update(zip(part.live_out, results[0], strict=True))
    return {
        "kind": "straight",
        "run": f"{name}.run",
        "in": list(part.live_in),
        "out": list(part.live_out),
        "sometimes": [],
        **feeds,
    }


def _export_loop(
    name: str, part: LoopPart, program: Program, slots: dict[int, Any], functions: dict[str, bytes]
) -> dict[str, Any]:
    """Exports a loop's step and condition, as `_export_part` does; its queues are not described."""
    carry, constants = (tuple(slots[s] for s in names) for names in (part.carry_in, part.constants))
    arguments = (carry, constants, dict(program.hidden), dict(part.infeeds))
    functions[f"{name}.step"], results = _exported(_counting(part), *arguments)
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
    }


def _counting(part: LoopPart) -> Any:
    """Wraps a loop's step to count iterations, if the iteration counter is used."""

    def step(carry: Arrays, constants: Arrays, hidden: Hidden, elements: Elements) -> tuple[Arrays, Hidden, Elements]:
        carry, hidden, enqueued = part.step(carry, constants, hidden, elements)
        if ITERATION in hidden:
            hidden = {**hidden, ITERATION: hidden[ITERATION] + 1}
        return carry, hidden, enqueued

    return step


def _exported(function: Any, *arguments: Any) -> tuple[bytes, Any]:
    """Exports and serializes a function; returns it with the shapes and dtypes of its results."""
    try:
        exported = export.export(jax.jit(portable.portable(function)))(*arguments)
        blob = bytes(exported.serialize())
    except (NotImplementedError, ValueError) as error:
        raise ExportError(f"JAX cannot export it: {error}") from error
    if unknown := unknown_calls(operations(exported.mlir_module_serialized), exported.platforms):
        raise ExportError(f"Programs in files call known functions of linear algebra only. Received: {unknown}.")
    PARSER.know(exported.mlir_module_serialized)
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
        "streamed_inputs": [_tensor(f"{q}.{i}", t, q) for q, types in infeeds.items() for i, t in enumerate(types)],
        "outputs": [_tensor(f"output_{i}", slots[slot], i) for i, slot in enumerate(program.results)],
        "streamed_outputs": [_tensor(f"{q}.{i}", t, q) for q, types in outfeeds.items() for i, t in enumerate(types)],
        "frozen": {str(i): _struct_text(program.parameters[i]) for i in weights},
    }


def _archive(about: Mapping[str, Any], functions: Mapping[str, bytes], weights: Mapping[int, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:

        def add(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name), data)  # without the time, so that equal programs give equal files

        add(ABOUT, json.dumps(about, indent=1).encode())
        for name, blob in functions.items():
            add(name, blob)
        for index, array in weights.items():
            add(f"weights/{index}.npy", _saved(array))
    return stream.getvalue()


def _tensor(name: str, struct: Any, place: int | str) -> dict[str, Any]:
    return {"name": name, **_struct_text(struct), "place": place}


def _struct_text(struct: Any) -> dict[str, Any]:
    return {"shape": list(struct.shape), "dtype": np.dtype(struct.dtype).name}


def _saved(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    # Numpy's format has no bfloat16 and the like: their bytes are kept, and the JSON says what they are.
    array = np.asarray(array)
    write_array(stream, array.view(np.void) if array.dtype.kind == "V" else array)
    return stream.getvalue()
