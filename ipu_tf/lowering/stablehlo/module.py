"""`Module`: a parsed StableHLO module: functions, parameters, and which results are new values of variables.

Reads what markers (custom calls `ipu.*`) carry, too: their configuration, the queues of infeeds and outfeeds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import jax

from ipu_tf.device.cache.jax_compilation import module_bytecode
from ipu_tf.device.op_locations import OpLocation
from ipu_tf.lowering.jax.jax_private import ir, parse_module
from ipu_tf.lowering.stablehlo.op import array_type

INFEED = "ipu.infeed"
OUTFEED = "ipu.outfeed"


class Arithmetic(Protocol):
    """Protocol of the floating-point arithmetic of a module, where it is not JAX's."""

    @property
    def places(self) -> Mapping[str, int]:
        """Returns the number of each op that is checked for floating-point exceptions, by TensorFlow's name."""

    def hidden_types(self, operation: Any) -> dict[str, jax.ShapeDtypeStruct]:
        """Returns shape and dtype of the hidden state that one op needs, by key."""

    def run(self, importer: Any, rule: Any, op: Any, operands: Any) -> Any:
        """Applies an op's rule; returns its results."""


@dataclasses.dataclass(frozen=True)
class Module:
    """StableHLO module of one program.

    Attributes:
        name: TensorFlow's name of the traced function.
        functions: the entry block of every function by symbol name; the program itself is `main`.
        parameters: shape and dtype of each parameter of `main`.
        results: shape and dtype of each result of `main`.
        aliases: result index -> parameter index, where a result is the new value of a variable.
        arithmetic: how it computes with floating-point numbers; None for as JAX does.
        norm_group: over how many consecutive replicas a batch normalisation takes the statistics of training.
        rounding_overrides: gives, by TensorFlow's name, the ops that round stochastically, or do not, whatever is
            configured.
        location_of: gives, by TensorFlow's name of an op, the line of the user's program that made it.
    """

    name: str
    functions: dict[str, Any]
    parameters: tuple[jax.ShapeDtypeStruct, ...]
    results: tuple[jax.ShapeDtypeStruct, ...]
    aliases: dict[int, int]
    mlir: Any
    arithmetic: Arithmetic | None = None
    norm_group: int = 1
    rounding_overrides: Callable[[], Mapping[str, bool]] = dict
    location_of: Callable[[str], OpLocation] = OpLocation

    def source(self) -> str:
        """Returns a hash of what its functions are traced from, for `Program.source`; "" where arithmetic is its own.

        TensorFlow's name of the function is no part of it: it has a number that counts all functions of the process.
        """
        if self.arithmetic is not None or self.norm_group != 1:
            return ""
        return hashlib.sha256(module_bytecode(self.mlir, names=False, symbol="module")).hexdigest()

    @property
    def main(self) -> Any:
        """Block of the main function."""
        return self.functions["main"]


def parse(text_or_bytecode: str | bytes) -> Module:
    """Parses StableHLO text or MLIR bytecode."""
    mlir = parse_module(text_or_bytecode)
    functions = functions_of(mlir)
    main = functions["main"]
    returned = main.operations[len(main.operations) - 1].operands
    return Module(
        name=_symbol(mlir),
        functions=functions,
        parameters=tuple(array_type(str(argument.type)) for argument in main.arguments),
        results=tuple(array_type(str(value.type)) for value in returned),
        aliases=_aliases(mlir),
        mlir=mlir,
    )


def functions_of(mlir: Any) -> dict[str, Any]:
    """Returns the entry block of every function of an MLIR module, by symbol name."""
    return {
        ir.StringAttr(function.attributes["sym_name"]).value: function.regions[0].blocks[0]
        for function in mlir.body.operations
    }


def walk(block: Any, functions: dict[str, Any]) -> Iterator[Any]:
    """Yields every operation of a block, of the regions in it, and of called functions."""
    for operation in block.operations:
        yield operation.operation
        for region in operation.operation.regions:
            for inner in region.blocks:
                yield from walk(inner, functions)
        if operation.operation.name == "func.call":
            yield from walk(functions[callee(operation.operation)], functions)


def callee(operation: Any) -> str:
    """Returns the name of the function that a `func.call` calls."""
    return ir.FlatSymbolRefAttr(operation.attributes["callee"]).value


def custom_call_target(operation: Any) -> str:
    """Returns the target of a custom call; an empty string for any other op."""
    if operation.name != "stablehlo.custom_call":
        return ""
    return ir.StringAttr(operation.attributes["call_target_name"]).value


def configuration(operation: Any) -> dict[str, Any]:
    """Parses the JSON configuration of a marker."""
    return json.loads(ir.StringAttr(operation.attributes["backend_config"]).value or "{}")


def feed_name(operation: Any) -> str | None:
    """Returns the queue name of an infeed or outfeed marker; None for any other op."""
    if custom_call_target(operation) not in (INFEED, OUTFEED):
        return None
    return configuration(operation)["queue"]


def _symbol(mlir: Any) -> str:
    attributes = mlir.operation.attributes
    name = ir.StringAttr(attributes["sym_name"]).value if "sym_name" in attributes else "program"
    return re.sub(r"^a_inference_|__\.?\d*$", "", name)


def _aliases(mlir: Any) -> dict[int, int]:
    """Reads `mhlo.input_output_alias`: which result is the new value of which parameter."""
    attributes = mlir.operation.attributes
    if "mhlo.input_output_alias" not in attributes:
        return {}
    found = {}
    for entry in ir.ArrayAttr(attributes["mhlo.input_output_alias"]):
        entry = ir.DictAttr(entry)
        alias = ir.DictAttr(entry["alias"])
        output = [int(index) for index in ir.DenseI64ArrayAttr(entry["output_index"])]
        found[output[0] if output else 0] = ir.IntegerAttr(alias["parameter_number"]).value
    return found
