"""Registry of importer rules from StableHLO op to JAX function: `rule`, `custom_call_rule`.

A rule is a small function from an op and the JAX values of its operands to the JAX values of its results.
A rule that meets an attribute it does not understand raises `NotImplementedError` saying which; the importer
collects these before anything runs and reports all of them in one `UnsupportedOpsError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax

from ipu_tf.lowering.stablehlo.module import custom_call_target
from ipu_tf.lowering.stablehlo.op import Op


class Importer(Protocol):
    """Interface of the importer that rules use.

    Attributes:
        arithmetic: how floating-point numbers are computed with; None for as JAX does.
    """

    arithmetic: Any

    def run_block(self, block: Any, arguments: Sequence[jax.Array]) -> list[jax.Array]:
        """Traces the block of a region or function with these arguments, and returns its results.

        Values of enclosing regions are visible in it.
        """
        ...

    def run_function(self, name: str, arguments: Sequence[jax.Array]) -> list[jax.Array]:
        """Traces another function of the module, by its symbol name without `@`, and returns its results."""
        ...

    def read(self, names: Sequence[Any]) -> list[Any]:
        """Returns the values of SSA names."""
        ...

    def has(self, names: Sequence[Any]) -> bool:
        """Returns whether all of these SSA names have values."""
        ...


Rule = Callable[..., Any]
"""`rule(importer, op, *operands)` gives one JAX value, or a list or tuple of them."""

RULES: dict[str, Rule] = {}
"""Rules by op name, e.g. `stablehlo.add`."""

CUSTOM_CALLS: dict[str, Rule] = {}
"""Rules of `stablehlo.custom_call` by target name, e.g. `TopK`."""


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of one or more ops.

    Raises:
        ValueError: if an op has a rule already.
    """
    return _registration(RULES, names)


def custom_call_rule(*targets: str) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of one or more custom call targets.

    Raises:
        ValueError: if a target has a rule already.
    """
    return _registration(CUSTOM_CALLS, targets)


def _registration(table: dict[str, Rule], names: Sequence[str]) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for name in names:
            if name in table:
                raise ValueError(f"{name} has a rule already: {table[name]}.")
            table[name] = function
        return function

    return register


@rule("stablehlo.custom_call")
def _custom_call(importer: Any, op: Op, *operands: Any) -> Any:
    """Applies the rule of the call's target."""
    results = CUSTOM_CALLS[custom_call_target(op.operation)](importer, op, *operands)
    if isinstance(results, (list, tuple)) and len(results) != len(op.operation.results):
        return [tuple(results)]  # several results come as one tuple
    return results
