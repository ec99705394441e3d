"""Rules for CHLO and MHLO functions (`erf`, `top_k`, ...)."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.lowering.importer.rules.registry import Importer, rule
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
    "conj": lax.conj,
    "digamma": lax.digamma,
    "erf_inv": lax.erf_inv,
    "erfc": lax.erfc,
    "is_inf": jnp.isinf,
    "is_neg_inf": jnp.isneginf,
    "is_pos_inf": jnp.isposinf,
    "lgamma": lax.lgamma,
    "next_after": lax.nextafter,
    "polygamma": lax.polygamma,
    "square": lax.square,
    "zeta": lax.zeta,
}


def _register(name: str, function: Callable[..., jax.Array]) -> None:
    @rule(name)
    def special(importer: Importer, op: Op, *operands: jax.Array) -> jax.Array:
        return function(*operands)


for _name, _function in _BOTH.items():
    _register(f"chlo.{_name}", _function)
    _register(f"mhlo.{_name}", _function)
for _name, _function in _CHLO.items():
    _register(f"chlo.{_name}", _function)


@rule("chlo.top_k", "mhlo.topk")
def _top_k(importer: Importer, op: Op, operand: jax.Array) -> tuple[jax.Array, jax.Array]:
    if op.has("largest") and not op.attribute("largest").value:
        raise NotImplementedError("the smallest elements of a top-k")
    values, indices = lax.top_k(operand, op.integer("k"))
    return values, lax.convert_element_type(indices, op.results[1].dtype)
