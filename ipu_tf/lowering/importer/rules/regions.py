"""Recognises the op in the region of a reduction, scatter, sort or map, and evaluates regions on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core

from ipu_tf.lowering.importer.rules.registry import Importer

SECOND = "second"
"""Result of `combiner` for a region that returns its second argument: the update replaces the old value."""


def combiner(block: Any) -> str | None:
    """Returns the single op that a region applies to its two arguments, e.g. `stablehlo.add`, or `SECOND`.

    None stands for a region that does anything else, or takes the arguments of an op that is not commutative
    in the other order.
    """
    operations = [operation.operation for operation in block.operations]
    arguments = list(block.arguments)
    if len(arguments) != 2:
        return None
    returned = list(operations[-1].operands)
    if len(operations) == 1:
        return SECOND if returned == arguments[1:] else None
    first = operations[0]
    if len(operations) != 2 or returned != list(first.results) or len(first.operands) != 2:
        return None
    operands = list(first.operands)
    return first.name if operands in (arguments, arguments[::-1]) and first.name in COMMUTATIVE else None


COMMUTATIVE = frozenset(f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor"))
"""Ops whose operands may change places, and that `combiner` therefore names."""


def on_scalars(importer: Importer, block: Any) -> Callable[..., list[jax.Array]]:
    """Converts a region to a function of scalars."""
    return lambda *scalars: importer.run_block(block, scalars)


def pairwise(importer: Importer, block: Any, starts: Sequence[Any]) -> Callable[..., tuple[jax.Array, ...]]:
    """Converts a region to the function of two tuples of scalars that `lax.reduce` takes.

    JAX keeps that function, as a key of a cache of thousands. It therefore holds the region's jaxpr, not the importer,
    which would keep the program's module, the variables that it uses, and their arrays on the device.

    Args:
        importer: of the program.
        block: the region.
        starts: the initial values, by which the scalars' types are known.
    """
    scalars = [jax.ShapeDtypeStruct((), start.dtype) for start in starts]
    traced = core.jaxpr_as_fun(jax.make_jaxpr(on_scalars(importer, block))(*scalars, *scalars))
    return lambda accumulated, values: tuple(traced(*accumulated, *values))


def on_arrays(importer: Importer, block: Any) -> Callable[..., list[jax.Array]]:
    """Converts a region of scalars to an elementwise function of arrays of one shape."""

    def apply(*arrays: jax.Array) -> list[jax.Array]:
        flat = [lax.reshape(array, (array.size,)) for array in arrays]
        results = jax.vmap(on_scalars(importer, block))(*flat)
        return [lax.reshape(result, arrays[0].shape) for result in results]

    return apply
