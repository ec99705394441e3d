"""Removes checks that always hold from a module: computed from constants, or of indices that are in range."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ipu_tf.lowering.importer.interpreter import Interpreter
from ipu_tf.lowering.importer.part_feeds import PartFeeds
from ipu_tf.lowering.importer.rules.checks import failure
from ipu_tf.lowering.jax.jax_private import ir
from ipu_tf.lowering.stablehlo.check_markers import LIST_ITEMS, OPERANDS, RANDOM_INTEGERS, check_markers
from ipu_tf.lowering.stablehlo.module import Module, configuration
from ipu_tf.lowering.stablehlo.op import array_type
from ipu_tf.lowering.stablehlo.value_ranges import ValueRanges

_MOST_OPERATIONS = 200
_NOT_COMPUTED = frozenset(f"stablehlo.{name}" for name in ("custom_call", "rng", "replica_id", "while", "case", "if"))


def remove_true_checks(module: Module) -> None:
    """Removes checks that always hold: their operands are constants, or their indices are known to be in range."""
    ranges = ValueRanges(module)
    for marker in check_markers(module):
        settings = configuration(marker)
        if _in_range(ranges, settings, marker.operands) or _always_true(module, settings, marker.operands):
            marker.erase()


def remove_operand_checks(module: Module) -> None:
    """Removes checks of operands' values, for a program that is exported: a file cannot raise for them."""
    for marker in check_markers(module):
        if configuration(marker)["kind"] in OPERANDS:
            marker.erase()


def _in_range(ranges: ValueRanges, settings: dict[str, Any], operands: Any) -> bool:
    """Returns whether a check of indices or of a range holds whatever the values are."""
    kind = settings["kind"]
    if kind in RANDOM_INTEGERS:
        least, limit = (ranges.of(operand) for operand in operands)
        return bool(least and limit and least[1] < limit[0])
    if kind == "ReverseSequence":
        lengths, size = ranges.of(operands[1]), array_type(str(operands[0].type)).shape[settings["axis"]]
        return bool(lengths and lengths[0] >= 0 and lengths[1] <= size)
    if kind in LIST_ITEMS:
        index, length = (ranges.of(operand) for operand in operands)
        return bool(index and length and index[0] >= 0 and index[1] < length[0])
    return False


def _always_true(module: Module, settings: dict[str, Any], operands: Any) -> bool:
    """Returns whether a check of constants holds."""
    needed = operands[:1] if settings["kind"] == "Assert" else operands
    slices = [_constant_slice(operand) for operand in needed]
    if any(operations is None for operations in slices):
        return False
    interpreter = Interpreter(module, PartFeeds({}, ()))
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        for operation in dict.fromkeys(operation for operations in slices for operation in operations or ()):
            interpreter.run_operation(operation)
        failed, _ = failure(settings, *map(jnp.asarray, interpreter.read(needed)))
        return not bool(failed)


def _constant_slice(name: Any) -> list[Any] | None:
    """Returns the ops that compute a value, in order, if it depends on constants alone; else None."""
    order: dict[Any, None] = {}
    waiting: list[tuple[Any, bool]] = [(name.owner, False)]
    while waiting:
        operation, ready = waiting.pop()
        if ready:
            order[operation] = None
        elif operation not in order:
            if not _is_pure(operation) or len(order) > _MOST_OPERATIONS:
                return None
            waiting.append((operation, True))
            waiting += [(value.owner, False) for value in operation.operands]
    return list(order)


def _is_pure(operation: Any) -> bool:
    return (
        not isinstance(operation, ir.Block)
        and operation.name.startswith("stablehlo.")
        and operation.name not in _NOT_COMPUTED
    )
