"""Collects all unsupported ops of a module in one error, before anything runs.

Unsupported are ops without a rule, shapes that depend on values, a TensorArray of size 0 that grows, and assertions,
random numbers, state and calls of the host in the condition of a loop that uses feeds.
"""

from __future__ import annotations

import collections
from typing import Any

from ipu_tf.lowering.importer.interpreter import TERMINATORS
from ipu_tf.lowering.importer.rules import CUSTOM_CALLS, RULES
from ipu_tf.lowering.stablehlo.advice import FIXED_SHAPES
from ipu_tf.lowering.stablehlo.check_markers import CHECK, check_markers_in, never_fits
from ipu_tf.lowering.stablehlo.errors import UnsupportedOp, UnsupportedOpsError
from ipu_tf.lowering.stablehlo.module import Module, configuration, custom_call_target, feed_name, walk
from ipu_tf.lowering.stablehlo.needed_hidden_state import types_in
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.stablehlo.partition import streamed
from ipu_tf.lowering.stablehlo.unknown_types import UNKNOWN_SHAPE, makes_unknown_type
from ipu_tf.lowering.tensorflow.host_calls import calls_host

NO_RULE = "there is no rule for it"
GROWS = (
    "a TensorArray of size 0 that grows (dynamic_size=True, or a Python list in a loop), and the device needs fixed "
    "shapes: give it its size, tf.TensorArray(dtype, size=...)"
)
IN_CONDITION = "an assertion in the condition of a loop that uses feeds: assert in the loop's body"
STATE_IN_CONDITION = (
    "a random number, state, a feed or a call of the host in the condition of a loop that uses feeds, which is "
    "evaluated apart from the loop: compute it in the loop's body, and carry the result to the condition"
)


def check_supported(module: Module) -> None:
    """Checks that the device can run a module: it has a rule for every op, and no shape depends on values.

    Refuses a TensorArray of size 0 that grows, too; one of another size that grows is refused when it does, by a check
    of the program (`graph_checks`). Refuses assertions and state in the condition of a loop that uses feeds.

    Raises:
        UnsupportedOpsError: listing every op that cannot be imported, with the lines of the program it came from.
    """
    found: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for operation in walk(module.main, module.functions):
        if operation.name == "stablehlo.while" and streamed(module, operation):
            condition = operation.regions[0].blocks[0]
            for marker in check_markers_in(module, condition):
                found[configuration(marker)["kind"], IN_CONDITION].append(_origin(marker))
            for each in _stateful(module, condition):
                found[custom_call_target(each) or each.name, STATE_IN_CONDITION].append(_origin(each))
        wrong = _missing(operation) or _of_unknown_type(operation)
        if wrong:
            found[wrong].append(_origin(operation))
    ops = [_with_locations(module, *kind, names) for kind, names in found.items()]
    if ops:
        raise UnsupportedOpsError(module.name, tuple(sorted(ops, key=lambda op: op.name)))


def _stateful(module: Module, condition: Any) -> list[Any]:
    """Returns the operations of a loop's condition that change state, assertions left out."""
    operations = [each for each in walk(condition, module.functions) if custom_call_target(each) != CHECK]
    return [each for each in operations if types_in([each], module) or feed_name(each) or calls_host([each])]


def _with_locations(module: Module, name: str, reason: str, origins: list[str]) -> UnsupportedOp:
    locations = tuple(map(module.location_of, dict.fromkeys(origins)))
    return UnsupportedOp(name, reason, locations, FIXED_SHAPES if reason == UNKNOWN_SHAPE else "")


def _origin(operation: Any) -> str:
    return Op(operation).origin.removesuffix("/ipu_check")


def _missing(operation: Any) -> tuple[str, str] | None:
    target = custom_call_target(operation)
    if never_fits(operation):
        return "TensorArray.write", GROWS
    if target:
        return None if target in CUSTOM_CALLS else (f"{operation.name} @{target}", NO_RULE)
    if operation.name in RULES or operation.name in TERMINATORS:
        return None
    return operation.name, NO_RULE


def _of_unknown_type(operation: Any) -> tuple[str, str] | None:
    made = makes_unknown_type(operation)
    return (operation.name, made) if made else None
