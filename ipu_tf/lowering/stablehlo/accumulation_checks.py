"""Checks that gradient accumulation is inside a loop whose trip count its accumulation count divides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from ipu_tf.device.errors import AccumulationCountError, AccumulationOutsideLoopError
from ipu_tf.device.op_locations import OpLocation, mark_located
from ipu_tf.lowering.stablehlo.errors import located
from ipu_tf.lowering.stablehlo.module import Module, callee, custom_call_target
from ipu_tf.lowering.stablehlo.needed_hidden_state import ACCUMULATE, UPDATE_DUE, accumulation_counts
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.stablehlo.trip_count import trip_count

_BRANCHES = ("stablehlo.case", "stablehlo.if")


def own_operations(module: Module, block: Any, branches: bool = True) -> Iterator[Any]:
    """Yields a block's operations, with those of called functions and branches, without those of inner loops."""
    for operation in block.operations:
        operation = operation.operation
        yield operation
        if operation.name == "func.call":
            yield from own_operations(module, module.functions[callee(operation)], branches)
        elif branches and operation.name in _BRANCHES:
            for region in operation.regions:
                yield from own_operations(module, region.blocks[0], branches)


def accumulation_counts_of_body(module: Module, loop: Any) -> tuple[int, ...]:
    """Returns the accumulation counts of a `while`, without those of inner loops."""
    return accumulation_counts(own_operations(module, loop.regions[1].blocks[0]))


def accumulation_location_of_body(module: Module, loop: Any) -> OpLocation | None:
    """Returns the op of a `while` that accumulates gradients over its own iterations; None if there is none."""
    return accumulation_location(module, own_operations(module, loop.regions[1].blocks[0]))


def accumulation_location(module: Module, operations: Iterable[Any]) -> OpLocation | None:
    """Returns the first of some operations that accumulates gradients, with the user's line; None if there is none."""
    found = next(filter(_accumulation, operations), None)
    return None if found is None else module.location_of(Op(found).origin)


def accumulates(module: Module, loop: Any) -> bool:
    """Returns whether a `while` accumulates gradients over its own iterations."""
    return any(_accumulation(o) for o in own_operations(module, loop.regions[1].blocks[0]))


def check_accumulation(module: Module, loop: Any, operands: Sequence[Any]) -> None:
    """Checks a loop that the host does not run, while it is traced.

    Raises:
        AccumulationCountError: if its number of iterations is no multiple of its mini-batches, or is not known.
    """
    counts = accumulation_counts_of_body(module, loop)
    if not counts:
        return
    trips = trip_count(module, loop)
    known = trips is not None and not any(
        isinstance(value, jax.core.Tracer) for value in operands if np.ndim(value) == 0
    )
    iterations = trips(operands) if trips is not None and known else None
    for count in counts:
        if iterations is None or iterations % count:
            raise mark_located(AccumulationCountError(count, iterations, accumulation_location_of_body(module, loop)))


def check_inside_loops(module: Module) -> None:
    """Checks that a program accumulates gradients only in loops.

    Raises:
        AccumulationOutsideLoopError: if it does so outside of any.
    """
    for operation in own_operations(module, module.main):
        if _accumulation(operation):
            raise located(
                AccumulationOutsideLoopError(), module.name, operation.name, module.location_of(Op(operation).origin)
            )


def _accumulation(operation: Any) -> bool:
    return custom_call_target(operation) in (ACCUMULATE, UPDATE_DUE)
