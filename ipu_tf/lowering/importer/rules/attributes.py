"""Attributes that `Op` does not read itself."""

from __future__ import annotations

from jax import lax

from ipu_tf.lowering.stablehlo.op import Op


def flag(op: Op, key: str) -> bool:
    """A boolean attribute; False where the op does not carry it."""
    return op.has(key) and bool(op.attribute(key).value)


def words(op: Op, key: str) -> tuple[str, ...]:
    """The words of an array of enum attributes: `("DEFAULT", "HIGHEST")` of a `precision_config`."""
    if not op.has(key):
        return ()
    return tuple(str(attribute).rstrip(">").split()[-1] for attribute in op.attribute(key))


def precision(op: Op) -> tuple[lax.Precision, lax.Precision] | None:
    """The precision wanted of either operand of a product; None where both are the default."""
    names = words(op, "precision_config")
    if set(names) <= {"DEFAULT"}:
        return None
    left, right = (lax.Precision[name] for name in names)
    return left, right
