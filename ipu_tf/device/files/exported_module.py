"""Lists the operations in the StableHLO of exported functions without compiling or loading anything.

As a script it answers requests on its standard input: `module_parser.py` runs it in a process of its own, since
jaxlib's parser may damage or end the process at bytecode that no exporter wrote. So it imports nothing else.

This file uses jaxlib's private MLIR bindings; `tests/project/test_private_api.py` watches it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import select
import sys
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

_CUSTOM_CALL = "stablehlo.custom_call"
_SETTINGS = "mhlo.backend_config"
_SECONDS, _MEMORY = 30, 2 * 2**30
"""Limits of parsing: seconds of processor time, and bytes beside twenty times a module's own."""


@dataclasses.dataclass(frozen=True)
class Array:
    """Array type of a value.

    Attributes:
        dtype: as MLIR has it, such as `f32`.
        shape: its dimensions.
    """

    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ExportedOp:
    """StableHLO operation of a module.

    Attributes:
        name: such as `stablehlo.add`.
        target: of a custom call, the function that it calls; empty for others.
        api: of a custom call, the version of its calling convention; 0 for others.
        operands: of a custom call.
        results: of a custom call.
        settings: of a custom call, its configuration's numbers by name.
    """

    name: str
    target: str = ""
    api: int = 0
    operands: tuple[Array, ...] = ()
    results: tuple[Array, ...] = ()
    settings: tuple[tuple[str, int], ...] = ()


def operations(artifact: bytes) -> list[ExportedOp]:
    """Lists every operation of a portable StableHLO module, including those in regions and functions.

    Args:
        artifact: as `jax.export` has it in `Exported.mlir_module_serialized`.

    Raises:
        ValueError: if it is none, has no function `main`, or has a custom call of another form than JAX makes.
    """
    with _context() as context:
        return list(_below(_parsed(context, artifact).operation))


def _parsed(context: Any, artifact: bytes) -> Any:
    try:
        module = stablehlo.deserialize_portable_artifact(context, artifact)
    except ir.MLIRError as error:
        raise ValueError(str(error)) from error
    if "main" not in ir.SymbolTable(module.operation):
        raise ValueError("it has no function `main`")
    return module


def _context() -> Any:
    """Makes a context with the dialects of JAX's exports, and no threads."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context = ir.Context()
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    context.enable_multithreading(False)
    sdy.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    chlo.register_dialect(context)
    stablehlo.register_dialect(context)
    return context


def _below(operation: Any) -> Iterator[ExportedOp]:
    yield _described(operation) if operation.name == _CUSTOM_CALL else ExportedOp(operation.name)
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield from _below(inner.operation)


def _described(operation: Any) -> ExportedOp:
    attributes = operation.attributes
    settings: Any = ir.DictAttr(attributes[_SETTINGS]) if _SETTINGS in attributes else ()
    other = attributes.get("backend_config", None)
    if other is not None and str(other) not in ('""', "{}"):
        raise ValueError(f"a custom call has the configuration {str(other)[:80]}, which JAX does not write")
    return ExportedOp(
        operation.name,
        ir.StringAttr(attributes["call_target_name"]).value,
        ir.IntegerAttr(attributes["api_version"]).value if "api_version" in attributes else 1,
        tuple(_array(operand.type) for operand in operation.operands),
        tuple(_array(result.type) for result in operation.results),
        tuple((named.name, _number(named.attr)) for named in settings),
    )


def _array(mlir: Any) -> Array:
    tensor = ir.RankedTensorType(mlir)
    return Array(str(tensor.element_type), tuple(tensor.shape))


def _number(attribute: Any) -> int:
    """Parses a whole number of a configuration; -1 for anything else."""
    return int(ir.IntegerAttr(attribute).value) if isinstance(attribute, ir.IntegerAttr) else -1


def _answer(artifact: bytes) -> tuple[dict[str, Any], bytes]:
    """Returns a module's operations, and the module as jaxlib writes it: what no exporter wrote is not in it."""
    with _context() as context:
        try:
            module = _parsed(context, artifact)
            found = [dataclasses.astuple(each) for each in _below(module.operation)]
            version = stablehlo.get_current_version()
            return {"operations": found}, stablehlo.serialize_portable_artifact(module, version, True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the process that asks raises it
            return {"error": f"{type(error).__name__}: {error}"}, b""


def _answer_in_a_fork(artifact: bytes) -> bytes:
    """Returns the answer to a request, a line of JSON and a module; that of a crash where parsing ends its process.

    A module that damages the memory of the process that parses it does nothing to the next one.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        memory = _MEMORY + 20 * len(artifact)
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        with open(writing, "wb") as answers:
            said, module = _answer(artifact)
            answers.write(json.dumps({**said, "length": len(module)}).encode() + b"\n" + module)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answers:
        answer = answers.read()
    _, status = os.waitpid(child, 0)
    return json.dumps({"crash": status, "length": 0}).encode() + b"\n" if status else answer


def _serve(idle_seconds: float) -> None:
    """Answers requests, each a length in 8 bytes and a module, until there is none for a while."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    while select.select([requests], [], [], idle_seconds)[0]:
        header = requests.read(8)
        if len(header) < 8:
            return
        answers.write(_answer_in_a_fork(requests.read(int.from_bytes(header, "little"))))
        answers.flush()


if __name__ == "__main__":
    _serve(float(sys.argv[-1]))
