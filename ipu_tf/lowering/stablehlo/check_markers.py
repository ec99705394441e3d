"""Finds the check markers of a module, and describes them for error messages.

A marker `ipu.check` is an assertion of the program, or a check of an op's operands: elements of a TensorArray are in it
and it does not grow, ranges of random integers are not empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ipu_tf.device.numerics.assertions import Check
from ipu_tf.lowering.jax.jax_private import ir
from ipu_tf.lowering.stablehlo.module import Module, configuration, custom_call_target, walk
from ipu_tf.lowering.stablehlo.op import array_type

CHECK = "ipu.check"
"""The marker of an assertion: its configuration is `number`, `kind`, `origin`, `message`, `pieces` and `summarize`."""
NAN_SUMMARY = "ipu.nan_summary"
"""The marker of `DebugNumericSummaryV2` as `tf.debugging.enable_check_numerics` uses it."""

GROWS = "grows"
"""The message of the check of a write to a TensorArray that may grow."""

LIST_ITEMS = ("TensorListGetItem", "TensorListSetItem", "TensorListGather")
"""Kinds of checks that elements of a TensorArray are in it."""

RANDOM_INTEGERS = ("RandomUniformInt", "StatelessRandomUniformInt", "StatelessRandomUniformIntV2")
"""Kinds of checks that a range is not empty."""

OPERANDS = (*LIST_ITEMS, *RANDOM_INTEGERS, "ReverseSequence", "InvertPermutation")
"""Kinds of checks of operands' values, which no assertion of the program asks for."""

Types = list[jax.ShapeDtypeStruct]

_BITS = jax.ShapeDtypeStruct((3,), np.dtype(np.bool_))


def check_markers(module: Module) -> list[Any]:
    """Returns the assertion markers of a module, each once."""
    return check_markers_in(module, module.main)


def check_markers_in(module: Module, block: Any) -> list[Any]:
    """Returns the assertion markers of a block and its regions, each once."""
    operations = walk(block, module.functions)
    return list(dict.fromkeys(operation for operation in operations if custom_call_target(operation) == CHECK))


def checks_of(module: Module) -> dict[int, Check]:
    """Returns the checks of a module by number."""
    return {configuration(marker)["number"]: described(marker) for marker in check_markers(module)}


def described(marker: Any) -> Check:
    """Parses a marker to its check."""
    settings = configuration(marker)
    operands = [array_type(str(value.type)) for value in marker.operands]
    tensors = _SHOWN[settings["kind"]](operands)
    return Check(
        settings["kind"],
        settings["origin"],
        settings.get("message", ""),
        tuple(settings.get("pieces", ())),
        settings["summarize"],
        tuple(tensors),
    )


def _integers(count: int) -> Callable[[Types], Types]:
    return lambda operands: [jax.ShapeDtypeStruct((), np.dtype(np.int32))] * count


_SHOWN: dict[str, Callable[[Types], Types]] = {
    "Assert": lambda operands: operands[1:],
    **dict.fromkeys(("CheckNumerics", "CheckNumericsV2"), lambda operands: [_BITS]),
    **dict.fromkeys(LIST_ITEMS, _integers(2)),
    "ReverseSequence": _integers(4),
    "InvertPermutation": _integers(3),
    **dict.fromkeys(RANDOM_INTEGERS, lambda operands: operands),
}
"""Shape and dtype of the tensors that each kind of check shows, from those of its operands."""


def never_fits(operation: Any) -> bool:
    """Returns whether an operation checks a write to an empty TensorArray, which always fails."""
    if custom_call_target(operation) != CHECK or configuration(operation)["kind"] != "TensorListSetItem":
        return False
    return configuration(operation).get("message") == GROWS and constant_value(operation.operands[1]) == 0


def constant_value(name: Any) -> Any:
    """Returns the value of an SSA name that is a constant; None for any other."""
    owner = name.owner
    if isinstance(owner, ir.Block) or owner.name != "stablehlo.constant":
        return None
    return np.array(ir.DenseElementsAttr(owner.attributes["value"])).reshape(-1)[0]
