"""Rules for calls, while, if and case, with hidden state carried along.

JAX does not allow a callback in a branch under `vmap` over replicas. So a branch that enqueues to an outfeed returns a
flag and an element as hidden state, and the element is enqueued after the branch if the flag is set on any replica.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ipu_tf.device.memory.hidden_state import ITERATION
from ipu_tf.device.numerics.assertions import ASSERTIONS, failed, stamped
from ipu_tf.device.program import collectives
from ipu_tf.lowering.importer.rules import host_regions
from ipu_tf.lowering.importer.rules.deferred_products import DeferredProducts, deferred_products
from ipu_tf.lowering.importer.rules.registry import rule
from ipu_tf.lowering.stablehlo.accumulation_checks import check_accumulation, own_operations
from ipu_tf.lowering.stablehlo.module import OUTFEED, custom_call_target, feed_name, walk
from ipu_tf.lowering.stablehlo.needed_hidden_state import ENQUEUED, keys_used, types_in
from ipu_tf.lowering.stablehlo.op import Op, array_type
from ipu_tf.lowering.stablehlo.trip_count import known_bounds, most_trips


@rule("func.call")
def _call(importer: Any, op: Op, *operands: jax.Array) -> list[jax.Array]:
    return importer.run_function(op.text("callee").lstrip("@").strip('"'), operands)


@rule("stablehlo.while")
def _while(importer: Any, op: Op, *operands: jax.Array) -> list[jax.Array]:
    check_accumulation(importer.module, op.operation, operands)
    trips = most_trips(importer.module, op.operation)
    outer, inner = _parted(importer, op)
    if ITERATION in inner:
        inner[ITERATION] = jnp.int32(0)
    condition_block, body_block = op.regions
    noting = _notes(importer, condition_block)
    loop = _WhileLoop(
        importer,
        condition_block,
        body_block,
        noting=noting,
        stops=trips is None and collectives.total(importer.replicas) == 1,
        turning=not noting and all(bound.step != 1 for bound in known_bounds(importer.module, op.operation)),
        deferred=deferred_products(importer.module, op.operation, trips) if importer.arithmetic is None else None,
    )
    run = functools.partial(host_regions.loop, importer) if host_regions.calls_host(importer, op) else lax.while_loop
    inner, results = loop.run(run, inner, operands)
    importer.hidden.update(inner | outer)
    return results


@dataclasses.dataclass(frozen=True)
class _WhileLoop:
    """Condition and body of a `stablehlo.while`, as `lax.while_loop` takes them.

    Its state is hidden state, the loop's values, room for deferred products, whether the loop continues, and its turns.

    Attributes:
        importer: traces both.
        condition_block: the condition.
        body_block: the body.
        noting: whether the condition has hidden state, so that it is evaluated in the body.
        stops: whether a failed assertion ends the loop.
        turning: whether the condition asks for the turns too, for which it always holds. XLA counts some loops of other
            steps than 1 wrongly; then it leaves the end to the condition, as it does with one evaluated in the body.
        deferred: sums of products that are computed after the loop, or None.
    """

    importer: Any
    condition_block: Any
    body_block: Any
    noting: bool
    stops: bool
    turning: bool
    deferred: DeferredProducts | None

    def run(
        self, while_loop: Callable[..., Any], hidden: dict[str, Any], operands: Sequence[jax.Array]
    ) -> tuple[dict[str, Any], list[jax.Array]]:
        """Returns the hidden state after the loop and its results."""
        start = tuple(jnp.asarray(value) for value in operands)
        room: Any = () if self.deferred is None else (jnp.int32(0), self.deferred.room())
        hidden, first = self._evaluated(hidden, start) if self.noting else (hidden, ())
        turns: Any = jnp.uint32(0) if self.turning else ()
        hidden, values, kept, *_ = while_loop(self._condition, self._body, (hidden, start, room, first, turns))
        return hidden, list(values) if self.deferred is None else self.deferred.totals(values, kept[1])

    def _evaluated(self, hidden: Any, values: Any) -> tuple[Any, jax.Array]:
        """Evaluates the condition; returns the hidden state after it, and whether the loop continues."""
        with self.importer.branch(hidden) as after:
            (going_on,) = self.importer.run_block(self.condition_block, values)
        going_on = jnp.reshape(going_on, ())
        return after, going_on & ~failed(after[ASSERTIONS]) if self.stops and ASSERTIONS in after else going_on

    def _condition(self, state: Any) -> jax.Array:
        going_on: jax.Array = state[3] if self.noting else self._evaluated(state[0], state[1])[1]
        return going_on & (state[4] != 1) if self.turning else going_on  # turns are even, also where they wrap around

    def _body(self, state: Any) -> Any:
        hidden, values, kept, _, turns = state
        with self.importer.branch(hidden) as after:
            results = self.importer.run_block(self.body_block, values)
            kept = kept if self.deferred is None else _kept(self.deferred, kept, self.importer)
        if ASSERTIONS in after:
            after[ASSERTIONS] = stamped(hidden[ASSERTIONS], after[ASSERTIONS], hidden[ITERATION])
        if ITERATION in after:
            after[ITERATION] = after[ITERATION] + 1
        results = results if self.deferred is None else self.deferred.unchanged(values, results)
        after, going_on = self._evaluated(after, results) if self.noting else (after, ())
        return after, tuple(results), kept, going_on, turns + 2 if self.turning else ()


def _notes(importer: Any, condition_block: Any) -> bool:
    """Returns whether a loop's condition has hidden state, so that it is evaluated in the body (JAX's has no state)."""
    used = types_in(walk(condition_block, importer.module.functions), importer.module)
    return any(key in importer.hidden for key in used)


def _kept(deferred: DeferredProducts, kept: Any, importer: Any) -> Any:
    trip, room = kept
    return trip + 1, deferred.kept(room, importer.read(deferred.names), trip)


@rule("stablehlo.case", "stablehlo.if")
def _case(importer: Any, op: Op, which: jax.Array) -> list[jax.Array]:
    blocks = op.regions
    if op.name == "stablehlo.if":
        blocks = blocks[::-1]

    def branch(block: Any) -> Any:
        def run(hidden: dict[str, jax.Array]) -> Any:
            with importer.branch(hidden) as after:
                values = importer.run_block(block, ())
            return after, tuple(jnp.asarray(value) for value in values)

        return run

    # StableHLO: an index out of range, above or below, takes the last branch.
    index = jnp.reshape(which, ()).astype(jnp.int32)
    index = jnp.where((index < 0) | (index >= len(blocks)), len(blocks) - 1, index)
    _, inner = _parted(importer, op)
    elements = empty_elements(importer, blocks)
    branches = [branch(block) for block in blocks]
    if host_regions.calls_host(importer, op):
        inner, values = host_regions.branches(importer, index, branches, inner | elements, op.results)
    else:
        inner, values = lax.switch(index, branches, inner | elements)
    enqueue_from_branches(importer, {key: inner.pop(key) for key in elements})
    importer.hidden.update(inner)
    return list(values)


def _parted(importer: Any, op: Op) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits hidden state into pieces that an op's regions do not use, and pieces that they do."""
    used = keys_used(importer.module, op.operation)
    inner = {key: value for key, value in importer.hidden.items() if key in used}
    return {key: value for key, value in inner.items() if key == ITERATION}, inner


Element = tuple[Any, ...]


def empty_elements(importer: Any, blocks: Sequence[Any]) -> dict[str, Element]:
    """Returns the initial flag and element, unset and zeros, of each queue that some branches enqueue to.

    Args:
        importer: traces the branches.
        blocks: the branches. Elements enqueued by loops in them are not deferred.
    """
    if importer.replicas == 1:
        return {}
    given = [
        operation
        for block in blocks
        for operation in own_operations(importer.module, block)
        if custom_call_target(operation) == OUTFEED and ENQUEUED + str(feed_name(operation)) not in importer.hidden
    ]
    return {ENQUEUED + str(feed_name(operation)): _nothing(operation) for operation in given}


def enqueue_from_branches(importer: Any, elements: dict[str, Element]) -> None:
    """Enqueues the deferred elements of branches to their queues, if there are any."""
    for key, (flag, *element) in elements.items():
        given = flag if importer.active is None else flag & importer.active
        importer.feeds.enqueue(key.removeprefix(ENQUEUED), element, given)


def _nothing(operation: Any) -> Element:
    types = [array_type(str(value.type)) for value in operation.operands]
    return (jnp.bool_(False), *(jnp.zeros(t.shape, t.dtype) for t in types))
