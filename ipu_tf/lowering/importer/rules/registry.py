"""Registry of importer rules from StableHLO op to JAX function: `rule`, `custom_call_rule`.

A rule is a small function from an op and the JAX values of its operands to the JAX values of its results.
Rules of floating-point arithmetic say so when they register (`ArithmeticKind`): their results are rounded to float16
and checked for exceptions.
A rule that meets an attribute it does not understand raises `NotImplementedError` saying which; the importer
collects these before anything runs and reports all of them in one `UnsupportedOpsError`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax

from ipu_tf._state.registry import register_state
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


class ArithmeticKind(enum.Enum):
    """How a rule computes floating-point numbers. Its results are rounded to float16 and checked for exceptions."""

    ELEMENTWISE = "elementwise"
    """Each element of a result depends on one element of each operand, as in `add` and `erf`."""
    WHOLE = "whole"
    """Elements of a result depend on several elements, as in products, norms and factorizations."""


ARITHMETIC: dict[str, ArithmeticKind] = register_state("arithmetic ops", {}, kept="filled by importing the rules")
"""The ops and custom call targets whose rules compute. All others move, choose or compare numbers, or are exact;
reductions, scatters and sorts do what their regions do (`arithmetic_ops`)."""


def rule(*names: str, arithmetic: ArithmeticKind | None = None) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of one or more ops.

    Args:
        names: of the ops, e.g. `chlo.erf`.
        arithmetic: how it computes floating-point numbers; None, if it does not: its results are not rounded then.

    Raises:
        ValueError: if an op has a rule already.
    """
    return _registration(RULES, names, arithmetic)


def custom_call_rule(*targets: str, arithmetic: ArithmeticKind | None = None) -> Callable[[Rule], Rule]:
    """Registers a function as the rule of one or more custom call targets.

    Args:
        targets: names of the targets, e.g. `Qr`.
        arithmetic: as in `rule`.

    Raises:
        ValueError: if a target has a rule already.
    """
    return _registration(CUSTOM_CALLS, targets, arithmetic)


def _registration(
    table: dict[str, Rule], names: Sequence[str], arithmetic: ArithmeticKind | None
) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        _enter(table, names, function)
        if arithmetic is not None:
            _enter(ARITHMETIC, names, arithmetic)
        return function

    return register


def _enter(table: dict[str, Any], names: Sequence[str], value: Any) -> None:
    """Enters a value under new names into a table, when the module of its rule is imported."""
    for name in names:
        if name in table:
            raise ValueError(f"{name} has a rule already: {table[name]}.")
        table[name] = value


@rule("stablehlo.custom_call")
def _custom_call(importer: Any, op: Op, *operands: Any) -> Any:
    """Applies the rule of the call's target."""
    results = CUSTOM_CALLS[custom_call_target(op.operation)](importer, op, *operands)
    if isinstance(results, (list, tuple)) and len(results) != len(op.operation.results):
        return [tuple(results)]  # several results come as one tuple
    return results
