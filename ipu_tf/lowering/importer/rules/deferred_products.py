"""Replaces sums of matrix products over a loop's iterations by one product after the loop.

The gradient of a recurrent layer's weights is a sum over time that its backward loop carries:

    total = total + transposed(left[t]) x right[t]    for each t      (a small product, and the total read and written)
    total = total + transposed(left) x right          after the loop  (one product, of what all iterations had)

The second form stores the operands of all iterations, so it is used where they are small compared to the totals that
the first form reads and writes. An iteration that is not run adds nothing: its operands stay zero.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ipu_tf.lowering.importer.rules.products import has_one_use, is_matrix_product, sum_of_matrix_products
from ipu_tf.lowering.stablehlo.module import Module, custom_call_target, walk
from ipu_tf.lowering.stablehlo.op import Op, array_type

#: Bytes of the operands that are kept for one loop, at most.
MOST_BYTES = 32 * 2**20


@dataclasses.dataclass(frozen=True)
class DeferredProduct:
    """Carried value of a loop whose only use is to add a product to it.

    Attributes:
        place: its index among the loop's operands.
        product: the `stablehlo.dot_general`.
    """

    place: int
    product: Any

    @property
    def operands(self) -> tuple[Any, Any]:
        """Returns both operands of the product, as SSA names."""
        left, right = self.product.operands
        return left, right


@dataclasses.dataclass(frozen=True)
class DeferredProducts:
    """Deferred products of a loop.

    Attributes:
        trips: how many iterations the loop has, at most.
        each: the carried values.
    """

    trips: int
    each: tuple[DeferredProduct, ...]

    @property
    def names(self) -> tuple[Any, ...]:
        """Returns the SSA names of all operands, each once."""
        return tuple(dict.fromkeys(name for one in self.each for name in one.operands))

    def room(self) -> tuple[jax.Array, ...]:
        """Allocates buffers for the operands of all iterations: zeros, `[trips, *shape]` each."""
        types = (array_type(str(name.type)) for name in self.names)
        return tuple(jnp.zeros((self.trips, *each.shape), each.dtype) for each in types)

    def kept(self, room: Sequence[jax.Array], values: Sequence[jax.Array], trip: jax.Array) -> tuple[jax.Array, ...]:
        """Stores an iteration's operands in the buffers."""
        pairs = zip(room, values, strict=True)
        return tuple(lax.dynamic_update_index_in_dim(array, value, trip, 0) for array, value in pairs)

    def unchanged(self, given: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """Replaces the sums among an iteration's results by their old values."""
        places = {one.place for one in self.each}
        return [given[place] if place in places else result for place, result in enumerate(results)]

    def totals(self, starts: Sequence[Any], room: Sequence[jax.Array]) -> list[Any]:
        """Adds the products' sums to the loop's results."""
        arrays, results = dict(zip(self.names, room, strict=True)), list(starts)
        for one in self.each:
            left, right = (arrays[name] for name in one.operands)
            results[one.place] = starts[one.place] + sum_of_matrix_products(Op(one.product), left, right)
        return results


def deferred_products(module: Module, loop: Any, trips: int | None) -> DeferredProducts | None:
    """Finds the products of a `stablehlo.while` that can be computed after it; None if there are none.

    Args:
        module: what the loop is in.
        loop: the operation.
        trips: how many iterations it has at most; None if that is not known.
    """
    if trips is None or trips < 2:
        return None
    condition, body = (region.blocks[0] for region in loop.regions)
    if any(map(custom_call_target, walk(condition, module.functions))):
        return None  # a check or a print in the condition sees the total of that iteration
    returned = body.operations[len(body.operations) - 1].operands
    found = tuple(d for d in (_deferred(body, returned, place) for place in range(len(returned))) if d is not None)
    products = DeferredProducts(trips, found)
    return products if found and trips * sum(_bytes(name) for name in products.names) <= MOST_BYTES else None


def _deferred(body: Any, returned: Any, place: int) -> DeferredProduct | None:
    """Returns the product that the body adds to a carried value, if that is its only use."""
    total = body.arguments[place]
    added = has_one_use(returned[place])
    if added is None or added.name != "stablehlo.add" or len(list(total.uses)) != 1 or added.operation.block != body:
        return None
    terms = [term for term in added.operands if term != total]
    product = has_one_use(terms[0]) if len(terms) == 1 else None
    return DeferredProduct(place, product) if product is not None and _is_cheaper(product, body) else None


def _is_cheaper(product: Any, body: Any) -> bool:
    """Tests whether it is a matrix product in the body, with operands not much larger than the total."""
    if product.operation.block != body or not is_matrix_product(Op(product)):
        return False
    left, right = (math.prod(array_type(str(name.type)).shape) for name in product.operands)
    return left + right <= 2 * math.prod(Op(product).result.shape)


def _bytes(name: Any) -> int:
    each = array_type(str(name.type))
    return math.prod(each.shape) * np.dtype(each.dtype).itemsize
