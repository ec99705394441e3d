"""Importer rules: one JAX function for each StableHLO op; importing the package registers all of them.

How to add an op (more of it in CONTRIBUTING.md):

1. Its file: `elementwise` for StableHLO's elementwise ops, `special_functions` for the dialects CHLO and MHLO
   (`chlo.top_k`, `chlo.erf`), `shapes` for what moves elements, else the file of its kind. Markers (`ipu.*`) and other
   custom calls are in the file of what they do: `linear_algebra`, `collectives`, `accumulation`, `feeds`, `checks`.
2. `@rule("dialect.name")`, or `@custom_call_rule("target")`.
3. If it computes floating-point numbers: `@rule("dialect.name", arithmetic=ArithmeticKind.ELEMENTWISE)`, or `WHOLE`.
   Its results are then rounded to float16 and checked for floating-point exceptions; without, they silently are not.
4. A new file is imported below.

Enters: an `Op` and the JAX values of its operands. Leaves: the JAX values of its results.
Start with `elementwise`, for the form of a rule; `registry` has the decorators.
"""

from ipu_tf.lowering.importer.rules import (
    accumulation,
    checks,
    collectives,
    constants,
    control_flow,
    convolution,
    elementwise,
    feeds,
    gather,
    host_calls,
    linear_algebra,
    normalization,
    pooling,
    products,
    random_numbers,
    reductions,
    scatter,
    shapes,
    sorting,
    special_functions,
    tuples_and_barriers,
)
from ipu_tf.lowering.importer.rules.registry import CUSTOM_CALLS, RULES

__all__ = [
    "CUSTOM_CALLS",
    "RULES",
    "accumulation",
    "checks",
    "collectives",
    "constants",
    "control_flow",
    "convolution",
    "elementwise",
    "feeds",
    "gather",
    "host_calls",
    "linear_algebra",
    "normalization",
    "products",
    "random_numbers",
    "reductions",
    "scatter",
    "shapes",
    "sorting",
    "special_functions",
    "tuples_and_barriers",
    "pooling",
]
