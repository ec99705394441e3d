"""Lists the operations in the StableHLO of exported functions without compiling or loading anything.

This file uses jaxlib's private MLIR bindings; `tests/project/test_private_api.py` watches it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from jax._src.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

_CUSTOM_CALL = "stablehlo.custom_call"
_SETTINGS = "mhlo.backend_config"


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
class Operation:
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


def operations(artifact: bytes) -> list[Operation]:
    """Lists every operation of a portable StableHLO module, including those in regions and functions.

    Args:
        artifact: as `jax.export` has it in `Exported.mlir_module_serialized`.

    Raises:
        ValueError: if it is none, has no function `main`, or has a custom call of another form than JAX makes.
    """
    with make_ir_context() as context:
        try:
            module = stablehlo.deserialize_portable_artifact(context, artifact)
        except ir.MLIRError as error:
            raise ValueError(str(error)) from error
        if "main" not in ir.SymbolTable(module.operation):
            raise ValueError("it has no function `main`")
        return list(_below(module.operation))


def _below(operation: Any) -> Iterator[Operation]:
    yield _described(operation) if operation.name == _CUSTOM_CALL else Operation(operation.name)
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield from _below(inner.operation)


def _described(operation: Any) -> Operation:
    attributes = operation.attributes
    settings: Any = ir.DictAttr(attributes[_SETTINGS]) if _SETTINGS in attributes else ()
    other = attributes.get("backend_config", None)
    if other is not None and str(other) not in ('""', "{}"):
        raise ValueError(f"a custom call has the configuration {str(other)[:80]}, which JAX does not write")
    return Operation(
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
