"""Finds the values of a program that may differ between replicas.

Elements of infeeds, random numbers and the replica's own number differ, and so does what is computed from them, until
replicas meet: a sum over all replicas, or a gather, is the same on each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipu_tf.lowering.stablehlo.module import INFEED, Module, callee, configuration, custom_call_target, walk

ASSUME_EQUAL = "ipu.assume_equal"
"""The marker of values that the program's author knows to be the same on all replicas."""

_OWN_OPS = ("stablehlo.rng", "stablehlo.replica_id")
_OWN_MARKERS = (INFEED, "ipu.replica_index", "ipu.reduce_scatter", "ipu.all_to_all")
_SHARED_MARKERS = ("ipu.all_gather", ASSUME_EQUAL)


def varying(module: Module, replicas: int, fed: int = 0) -> frozenset[Any]:
    """Returns the SSA names of values that may differ between replicas.

    Variables are taken to be the same at first; one that the program gives a value of each replica's own is not.

    Args:
        module: the program.
        replicas: how many run it.
        fed: how many parameters, the first ones, are elements of an infeed.
    """
    found = set(list(module.main.arguments)[:fed])
    operations = list(walk(module.main, module.functions))
    returned = _returned(module.main)
    before = -1
    while before != len(found):
        before = len(found)
        for operation in operations:
            found.update(_from(operation, module, replicas, found))
        pairs = module.aliases.items()
        found.update(module.main.arguments[parameter] for result, parameter in pairs if returned[result] in found)
    return frozenset(found)


def _from(operation: Any, module: Module, replicas: int, found: set[Any]) -> list[Any]:
    """Returns the names that vary by one operation, given those found so far."""
    operands, results = list(operation.operands), list(operation.results)
    if operation.name == "func.call":
        inner = module.functions[callee(operation)]
        return _tied(inner.arguments, operands, found) + _tied(results, _returned(inner), found)
    if operation.name == "stablehlo.while":
        return _from_loop(operation, operands, results, found)
    if operation.name in ("stablehlo.if", "stablehlo.case"):
        branches = [_returned(region.blocks[0]) for region in operation.regions]
        return results if operands[0] in found else [n for names in branches for n in _tied(results, names, found)]
    if _is_shared(operation, replicas):
        return []
    own = operation.name in _OWN_OPS or custom_call_target(operation) in _OWN_MARKERS
    return results if own or any(operand in found for operand in operands) else []


def _from_loop(operation: Any, operands: list[Any], results: list[Any], found: set[Any]) -> list[Any]:
    condition, body = (region.blocks[0] for region in operation.regions)
    if _returned(condition)[0] in found:  # replicas may leave the loop at different times
        return [*results, *body.arguments, *condition.arguments]
    names = []
    for sources in (operands, _returned(body)):
        for targets in (condition.arguments, body.arguments, results):
            names += _tied(targets, sources, found)
    return names


def _is_shared(operation: Any, replicas: int) -> bool:
    """Returns whether an operation's results are the same on all replicas, as those of an all-reduce."""
    target = custom_call_target(operation)
    if target != "ipu.all_reduce":
        return target in _SHARED_MARKERS
    settings = configuration(operation)
    return settings["operation"] != "LOCAL" and settings["group"] in (None, replicas)


def _tied(targets: Sequence[Any], sources: Sequence[Any], found: set[Any]) -> list[Any]:
    """Returns the targets whose sources vary."""
    return [target for target, source in zip(targets, sources, strict=True) if source in found]


def _returned(block: Any) -> list[Any]:
    """Returns the names of a block's results."""
    return list(block.operations[len(block.operations) - 1].operands)
