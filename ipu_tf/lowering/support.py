"""Checks a whole module before anything runs, so that all unsupported ops come in one error."""

from __future__ import annotations

import collections
from typing import Any

from ipu_tf.lowering.errors import UnsupportedOp, UnsupportedOpsError
from ipu_tf.lowering.interpreter import TERMINATORS
from ipu_tf.lowering.module import Module, custom_call_target, walk
from ipu_tf.lowering.op import Op
from ipu_tf.lowering.rules import CUSTOM_CALLS, RULES


def check_supported(module: Module) -> None:
    """Looks up a rule for every op of a module.

    Raises:
        UnsupportedOpsError: listing every op without one, with the places of the model it came from.
    """
    missing: dict[str, list[str]] = collections.defaultdict(list)
    for operation in walk(module.main, module.functions):
        name = _missing(operation)
        if name:
            missing[name].append(Op(operation).origin)
    if missing:
        ops = [UnsupportedOp(name, "there is no rule for it", tuple(dict.fromkeys(o))) for name, o in missing.items()]
        raise UnsupportedOpsError(module.name, tuple(sorted(ops, key=lambda op: op.name)))


def _missing(operation: Any) -> str | None:
    target = custom_call_target(operation)
    if target:
        return None if target in CUSTOM_CALLS else f"{operation.name} @{target}"
    if operation.name in RULES or operation.name in TERMINATORS:
        return None
    return operation.name
