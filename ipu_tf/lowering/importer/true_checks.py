"""Removes assertions that always hold, with conditions computed from constants, from a module."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ipu_tf.lowering.importer.feeds import PartFeeds
from ipu_tf.lowering.importer.interpreter import Interpreter
from ipu_tf.lowering.jax.jax_private import ir
from ipu_tf.lowering.stablehlo.checks import check_markers
from ipu_tf.lowering.stablehlo.module import Module, configuration

_MOST_OPERATIONS = 200
_NOT_COMPUTED = frozenset(f"stablehlo.{name}" for name in ("custom_call", "rng", "replica_id", "while", "case", "if"))


def remove_true_checks(module: Module) -> None:
    """Removes assertions whose condition is computed from constants and holds."""
    for marker in check_markers(module):
        if configuration(marker)["kind"] == "Assert" and _always_true(module, marker.operands[0]):
            marker.erase()


def _always_true(module: Module, condition: Any) -> bool:
    operations = _constant_slice(condition)
    if operations is None:
        return False
    interpreter = Interpreter(module, PartFeeds({}, ()))
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        for operation in operations:
            interpreter.run_operation(operation)
        [value] = interpreter.read([condition])
        return bool(np.all(np.asarray(value)))


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
