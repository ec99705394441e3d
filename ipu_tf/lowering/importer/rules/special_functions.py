"""Rules for ops of the dialects CHLO and MHLO, special functions and top-k: `chlo.erf`, `chlo.lgamma`, `chlo.top_k`."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.lowering.importer.rules.registry import ArithmeticKind, Importer, rule
from ipu_tf.lowering.stablehlo.op import Op

_BOTH: dict[str, Callable[..., jax.Array]] = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atanh": lax.atanh,
    "cosh": lax.cosh,
    "erf": lax.erf,
    "sinh": lax.sinh,
    "tan": lax.tan,
}
_CHLO: dict[str, Callable[..., jax.Array]] = {
    "atan": lax.atan,
    "bessel_i1e": lax.bessel_i1e,
    "digamma": lax.digamma,
    "erf_inv": lax.erf_inv,
    "erfc": lax.erfc,
    "lgamma": lax.lgamma,
    "polygamma": lax.polygamma,
    "square": lax.square,
    "zeta": lax.zeta,
}
_EXACT_CHLO: dict[str, Callable[..., jax.Array]] = {
    "conj": lax.conj,
    "is_inf": jnp.isinf,
    "is_neg_inf": jnp.isneginf,
    "is_pos_inf": jnp.isposinf,
    "next_after": lax.nextafter,
}


def _register(name: str, function: Callable[..., jax.Array], arithmetic: ArithmeticKind | None) -> None:
    @rule(name, arithmetic=arithmetic)
    def special(importer: Importer, op: Op, *operands: jax.Array) -> jax.Array:
        return function(*operands)


for _name, _function in _BOTH.items():
    _register(f"chlo.{_name}", _function, ArithmeticKind.ELEMENTWISE)
    _register(f"mhlo.{_name}", _function, ArithmeticKind.ELEMENTWISE)
for _name, _function in _CHLO.items():
    _register(f"chlo.{_name}", _function, ArithmeticKind.ELEMENTWISE)
for _name, _function in _EXACT_CHLO.items():
    _register(f"chlo.{_name}", _function, None)


@rule("chlo.top_k", "mhlo.topk")
def _top_k(importer: Importer, op: Op, operand: jax.Array) -> tuple[jax.Array, jax.Array]:
    if op.has("largest") and not op.attribute("largest").value:
        raise NotImplementedError("the smallest elements of a top-k")
    values, indices = lax.top_k(operand, op.integer("k"))
    return values, lax.convert_element_type(indices, op.results[1].dtype)
