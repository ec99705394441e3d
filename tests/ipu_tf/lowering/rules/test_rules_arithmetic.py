"""Rules that compute floating-point numbers are registered as arithmetic, and no others: only these are rounded."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from ipu_tf.lowering.importer.rules import RULES, elementwise, special_functions
from ipu_tf.lowering.importer.rules.registry import ARITHMETIC, ArithmeticKind

NUMBERS = np.random.default_rng(0).normal(0, 2, 500).astype(np.float16)
OPERANDS = [jnp.asarray(np.concatenate([np.roll(NUMBERS, shift), [0, 1, -1]]), jnp.float32) for shift in range(3)]

#: Rules that are told more than numbers, or whose results depend on the dtype; why they are, or are not, arithmetic.
OTHERWISE = {
    "stablehlo.convert": "rounds to another dtype",
    "stablehlo.reduce_precision": "rounds as its attributes say",
    "stablehlo.bitcast_convert": "moves bits",
    "stablehlo.compare": "compares",
    "stablehlo.select": "chooses",
    "chlo.top_k": "chooses",
    "mhlo.topk": "chooses",
    "chlo.next_after": "is exact: the next number of its own dtype",
}
NAMES = sorted(
    name
    for name, function in RULES.items()
    if function.__module__ in (elementwise.__name__, special_functions.__name__) and name not in OTHERWISE
)


def computed(name: str) -> np.ndarray | None:
    """The real result of a rule for float16 numbers, computed in float32; None if it takes or gives no such numbers."""
    for count in (1, 2, 3):
        try:
            result = RULES[name](None, None, *OPERANDS[:count])
        except TypeError:
            continue
        return np.asarray(result) if jnp.issubdtype(result.dtype, jnp.floating) else None
    return None


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_is_arithmetic_if_it_rounds_or_has_no_result_for_some_numbers(name: str) -> None:
    result = computed(name)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        exact = result is None or np.array_equal(result.astype(np.float16).astype(np.float32), result)
    assert (ARITHMETIC.get(name) is ArithmeticKind.ELEMENTWISE) == (not exact)


def test_most_rules_are_tried() -> None:
    assert sum(computed(name) is not None for name in NAMES) > 40
