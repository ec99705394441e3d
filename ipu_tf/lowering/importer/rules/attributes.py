"""Reads StableHLO attributes: flags, enum arrays, precision."""

from __future__ import annotations

from jax import lax

from ipu_tf.lowering.stablehlo.op import Op


def flag(op: Op, key: str) -> bool:
    """Returns a boolean attribute; False if the op does not have it."""
    return op.has(key) and bool(op.attribute(key).value)


def words(op: Op, key: str) -> tuple[str, ...]:
    """Returns the words of an array of enum attributes: `("DEFAULT", "HIGHEST")` of a `precision_config`."""
    if not op.has(key):
        return ()
    return tuple(str(attribute).rstrip(">").split()[-1] for attribute in op.attribute(key))


def precision(op: Op) -> tuple[lax.Precision, lax.Precision] | None:
    """Returns the precision of both operands of a product; None if both are the default."""
    names = words(op, "precision_config")
    if set(names) <= {"DEFAULT"}:
        return None
    left, right = (lax.Precision[name] for name in names)
    return left, right
