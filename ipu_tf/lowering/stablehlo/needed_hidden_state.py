"""Finds the hidden state that a module needs: seeds, iteration counters, accumulators, FIFOs, failed checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from ipu_tf.device.memory.hidden_state import ITERATION, ITERATION_TYPE, SEED, SEED_TYPE
from ipu_tf.device.numerics.assertions import ASSERTIONS, state_type
from ipu_tf.lowering.stablehlo.check_markers import CHECK, described
from ipu_tf.lowering.stablehlo.module import Module, configuration, custom_call_target, feed_name, walk
from ipu_tf.lowering.stablehlo.op import Op

ACCUMULATE = "ipu.accumulate"
ITERATION_COUNTER = "ipu.iteration"
UPDATE_DUE = "ipu.update_due"
FIFO = "ipu.fifo"

ENQUEUED = "element of "
"""Before the name of an outfeed: the element, if any, that this iteration enqueued in a branch."""

Types = dict[str, jax.ShapeDtypeStruct]


def hidden_types(module: Module) -> Types:
    """Returns shape and dtype of all hidden state that a module uses, by key."""
    return types_in(walk(module.main, module.functions), module)


def types_in(operations: Iterable[Any], module: Module) -> Types:
    """Returns shape and dtype of the hidden state that some operations use, by key."""
    arithmetic = module.arithmetic
    found: Types = {}
    for operation in operations:
        if operation.name == "stablehlo.rng":
            found[SEED] = SEED_TYPE
        else:
            needs = _NEEDS.get(custom_call_target(operation))
            found |= _with_room(found, needs(operation)) if needs else {}
        if arithmetic is not None:
            found |= arithmetic.hidden_types(operation)
    return found


def keys_used(module: Module, operation: Any) -> frozenset[str]:
    """Returns the keys of the hidden state that the regions of a loop or branch use."""
    inner = [o for region in operation.regions for block in region.blocks for o in walk(block, module.functions)]
    enqueued = {ENQUEUED + name for name in map(feed_name, inner) if name}
    return frozenset(enqueued | types_in(inner, module).keys())


def accumulation_counts(operations: Iterable[Any]) -> tuple[int, ...]:
    """Returns the accumulation counts of some operations, where they are constants."""
    counts = [configuration(o).get("count") for o in operations if custom_call_target(o) in (ACCUMULATE, UPDATE_DUE)]
    return tuple(sorted({count for count in counts if count}))


def _with_room(found: Types, wanted: Types) -> Types:
    """Returns an operation's hidden state; all checks share one piece, of the size of the largest."""
    both = [types[ASSERTIONS] for types in (found, wanted) if ASSERTIONS in types]
    return wanted | ({ASSERTIONS: max(both, key=lambda struct: struct.shape)} if both else {})


def _check(operation: Any) -> Types:
    check = described(operation)
    return {ASSERTIONS: state_type(check.tensors, check.summarize), ITERATION: ITERATION_TYPE}


def _accumulator(operation: Any) -> Types:
    return {configuration(operation)["key"]: Op(operation).result, ITERATION: ITERATION_TYPE}


def _delay_line(operation: Any) -> Types:
    settings, value = configuration(operation), Op(operation).result
    return {settings["key"]: jax.ShapeDtypeStruct((settings["depth"], *value.shape), value.dtype)}


def _counter(operation: Any) -> Types:
    return {ITERATION: ITERATION_TYPE}


_NEEDS: dict[str, Callable[[Any], Types]] = {
    ACCUMULATE: _accumulator,
    UPDATE_DUE: _counter,
    ITERATION_COUNTER: _counter,
    FIFO: _delay_line,
    CHECK: _check,
}
