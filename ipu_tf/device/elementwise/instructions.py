"""Instructions of the native elementwise kernel, in its order, and the JAX primitives that they compute."""

from __future__ import annotations

_FORMS = ("vv", "vs", "sv")
"""Which operands are a block's elements (v), and which is a scalar (s)."""
ARITHMETIC = ("add", "sub", "mul", "div", "max", "min")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
UNARY = ("copy", "neg", "abs", "square", "sqrt", "rsqrt")
LOGIC = ("and", "or", "xor", "not")
SELECT = ("vv", "vs", "sv", "ss")
LOAD, STORE, NUMBER = "load", "store", "number"
"""Truth values from bytes, to bytes, and as numbers."""

FIRST, SECOND = ("add_vv", "add_vs", "sub_vv", "sub_vs", "sub_sv", "mul_vv", "mul_vs"), ("add", "sub", "from", "mul")
"""Operations that are joined with a second one that reads them; `from` subtracts from its other operand."""
QUOTIENT, ROOT, BOUNDED, INSIDE = "mul_vs_div_v", "sqrt_add_s", "bounded", "inside_store"
"""x * s / y, sqrt(x) + s, min(max(x, s), t), and whether s < x < t, as bytes."""
SUM, SUM_PRODUCTS = "sum", "sum_products"
"""Add a block, or the products of two, to a sum."""

INSTRUCTIONS = (
    *(f"{name}_{form}" for name in ARITHMETIC for form in _FORMS),
    *(f"{name}_{form}" for name in COMPARISONS for form in _FORMS[:2]),
    *UNARY,
    *LOGIC,
    *(f"select_{form}" for form in SELECT),
    *(LOAD, STORE, NUMBER),
    *(f"{first}_{second}_{form}" for first in FIRST for second in SECOND for form in ("v", "s")),
    *(QUOTIENT, ROOT, BOUNDED),
    *(f"{name}_{form}_store" for name in COMPARISONS for form in _FORMS[:2]),
    INSIDE,
    *(f"load_select_{form}" for form in SELECT),
    *(SUM, SUM_PRODUCTS),
)
"""Names of the kernels in `native/elementwise_kernels.h`, in the order of its table."""
CODES = {name: code for code, name in enumerate(INSTRUCTIONS)}

SWAPPED = {"add": "add", "mul": "mul", "eq": "eq", "ne": "ne", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
"""Operations whose operands may be exchanged, and the one that they become."""

PRIMITIVES = {
    **{name: name for name in (*ARITHMETIC, *COMPARISONS, *LOGIC, "neg", "abs", "square", "sqrt", "rsqrt")},
    "add_any": "add",
    "select_n": "select",
    "clamp": "clamp",
    "integer_pow": "square",
    "convert_element_type": "number",
}
"""JAX primitives, and the operation that computes each."""
