"""Builds a device `Program` from a StableHLO module."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipu_tf.device.op_places import described
from ipu_tf.device.program.program import Arrays, Elements, Hidden, LoopPart, Part, Program, StraightLinePart, Types
from ipu_tf.lowering.importer.feeds import PartFeeds
from ipu_tf.lowering.importer.half_precision import checked_origins, with_numerics
from ipu_tf.lowering.importer.interpreter import Interpreter
from ipu_tf.lowering.importer.numerics import Numerics
from ipu_tf.lowering.importer.rules.deferred_products import deferred_products
from ipu_tf.lowering.importer.true_checks import remove_true_checks
from ipu_tf.lowering.importer.unsupported_ops import check_supported
from ipu_tf.lowering.stablehlo.accumulation_checks import accumulation_counts_of_body, check_inside_loops
from ipu_tf.lowering.stablehlo.checks import checks_of
from ipu_tf.lowering.stablehlo.duration import runs_long
from ipu_tf.lowering.stablehlo.hidden_state import ENQUEUED, hidden_types, types_in
from ipu_tf.lowering.stablehlo.module import INFEED, OUTFEED, Module, custom_call_target, feed_name, walk
from ipu_tf.lowering.stablehlo.op import Op, array_type
from ipu_tf.lowering.stablehlo.partition import LoopPiece, Rebind, StraightLinePiece, partition
from ipu_tf.lowering.stablehlo.trip_count import most_trips, trip_count
from ipu_tf.lowering.stages.stage_loops import loop_stages
from ipu_tf.lowering.tensorflow.host_calls import calls_host


def build_program(module: Module, replicas: int = 1, numerics: Numerics = Numerics()) -> Program:  # noqa: B008
    """Builds the program of a module, for this number of replicas and these floating-point settings.

    Raises:
        UnsupportedOpsError: listing every op that the importer has no rule for. Nothing was run.
    """
    remove_true_checks(module)
    check_supported(module)
    module = with_numerics(module, numerics, replicas)
    pieces = partition(module, lambda loop: replicas == 1 and _in_chunks(module, loop))
    names = _SlotNumbers(module, pieces.same)
    operations = list(walk(module.main, module.functions))
    feeds = {name for name in map(feed_name, operations) if name}
    _check_enqueues(operations, module)
    check_inside_loops(module)
    staged = {name for piece in pieces.parts for name in piece.feeds}
    return Program(
        name=module.name,
        parameters=module.parameters,
        parts=tuple(_part(module, piece, names, replicas) for piece in pieces.parts),
        results=names.slots(pieces.results),
        aliases=module.aliases,
        hidden=hidden_types(module),
        replicas=replicas,
        uses_callbacks=bool(feeds - staged) or calls_host(operations),
        called_back=tuple(sorted(feeds - staged)),
        checked=checked_origins(module),
        checks=checks_of(module),
    )


def program_function(
    module: Module, replicas: int = 1
) -> Callable[[Sequence[Any], Hidden], tuple[list[jax.Array], Hidden]]:
    """Converts a module without feeds to one JAX function: `(parameters, hidden) -> (results, hidden)`.

    Raises:
        UnsupportedOpsError: listing every op that the importer has no rule for.
    """
    remove_true_checks(module)
    check_supported(module)

    def function(parameters: Sequence[Any], hidden: Hidden) -> tuple[list[jax.Array], Hidden]:
        interpreter = Interpreter(module, PartFeeds({}, (), replicas), hidden, replicas)
        return [jnp.asarray(v) for v in interpreter.run_function("main", parameters)], interpreter.hidden

    return function


def _in_chunks(module: Module, loop: Any) -> bool:
    """Returns whether a loop without feeds runs in chunks: one that may run long, and is not faster as a whole."""
    if types_in(walk(loop.regions[0].blocks[0], module.functions), module):
        return False  # a condition that notes failures is evaluated in the loop's body
    return runs_long(module, loop) and deferred_products(loop, most_trips(module, loop)) is None


def _check_enqueues(operations: Sequence[Any], module: Module) -> None:
    enqueues: dict[str | None, list[Any]] = {}
    for operation in operations:
        if custom_call_target(operation) == OUTFEED:
            enqueues.setdefault(feed_name(operation), []).append(operation)
    for several in (several for several in enqueues.values() if len(several) > 1):
        places = [module.place_of(Op(operation).origin) for operation in several]
        raise ValueError(f"An outfeed can only be enqueued once.\n{described(places)}")


class _SlotNumbers:
    """Slot numbers for SSA names; the parameters come first. A copy has the slot of its original."""

    def __init__(self, module: Module, same: Mapping[Any, Any]) -> None:
        self._same = same
        self._count: Iterator[int] = itertools.count()
        self._slots: dict[Any, int] = {}
        self.slots(module.main.arguments)

    def slots(self, names: Sequence[Any]) -> tuple[int, ...]:
        """Returns the slots of some names."""
        own = [self._same.get(name, name) for name in names]
        return tuple(self._slots[n] if n in self._slots else self._slots.setdefault(n, next(self._count)) for n in own)


def _part(module: Module, piece: StraightLinePiece | LoopPiece, names: _SlotNumbers, replicas: int) -> Part:
    if isinstance(piece, LoopPiece):
        return _loop_part(module, piece, names, replicas)
    operations = [step.operation for step in piece.steps if not isinstance(step, Rebind)]
    infeeds, outfeeds = _queues(module, operations, piece.feeds)

    def run(live: Arrays, hidden: Hidden, elements: Elements) -> tuple[Arrays, Hidden, Elements]:
        feeds = PartFeeds(elements, tuple(outfeeds), replicas)
        interpreter = Interpreter(module, feeds, hidden, replicas)
        interpreter.bind(piece.live_in, live)
        for step in piece.steps:
            if isinstance(step, Rebind):
                interpreter.bind(step.targets, interpreter.read(step.sources))
            else:
                interpreter.run_operation(step.operation)
        outputs = tuple(jnp.asarray(value) for value in interpreter.read(piece.live_out))
        return outputs, interpreter.hidden, feeds.enqueued

    return StraightLinePart(run, names.slots(piece.live_in), names.slots(piece.live_out), infeeds, outfeeds)


def _loop_part(module: Module, piece: LoopPiece, names: _SlotNumbers, replicas: int) -> LoopPart:
    loop = piece.operation
    condition, body = (region.blocks[0] for region in loop.regions)
    infeeds, outfeeds = _queues(module, list(_inside(module, body)), piece.feeds)
    initial = tuple(loop.operands)
    constants = tuple(name for name in piece.live_in if name not in set(initial) or _read_inside(module, loop, name))

    def interpreter(feeds: PartFeeds, hidden: Hidden, values: Arrays) -> Interpreter:
        made = Interpreter(module, feeds, hidden, replicas)
        made.bind(constants, values)
        return made

    def step(carry: Arrays, values: Arrays, hidden: Hidden, elements: Elements) -> tuple[Arrays, Hidden, Elements]:
        feeds = PartFeeds(elements, tuple(outfeeds), replicas)
        running = interpreter(feeds, hidden | nothing_enqueued(), values)
        outputs = tuple(jnp.asarray(value) for value in running.run_block(body, carry))
        enqueued: dict[str, Any] = {name: running.hidden.pop(ENQUEUED + name) for name in piece.sometimes}
        return outputs, running.hidden, feeds.enqueued | enqueued

    def goes_on(carry: Arrays, values: Arrays) -> jax.Array:
        (more,) = interpreter(PartFeeds({}, (), replicas), {}, values).run_block(condition, carry)
        return jnp.reshape(more, ())

    def nothing_enqueued() -> dict[str, Any]:
        """Returns the initial flags and elements of the queues that are used in branches: nothing enqueued."""
        zeros = {name: tuple(jnp.zeros(t.shape, t.dtype) for t in outfeeds[name]) for name in piece.sometimes}
        return {ENQUEUED + name: (jnp.bool_(False), *element) for name, element in zeros.items()}

    read_later = set(piece.live_out)
    return LoopPart(
        step=step,
        goes_on=goes_on,
        trip_count=None if piece.feedless else trip_count(module, loop),
        feedless=piece.feedless,
        carry_in=names.slots(initial),
        constants=names.slots(constants),
        carry_out=tuple(names.slots([name])[0] if name in read_later else None for name in loop.results),
        infeeds=infeeds,
        outfeeds=outfeeds,
        accumulation_counts=accumulation_counts_of_body(module, loop),
        sometimes=piece.sometimes,
        stages=loop_stages(module, loop, constants, replicas),
    )


def _read_inside(module: Module, loop: Any, name: Any) -> bool:
    return any(
        name in list(operation.operands)
        for region in loop.regions
        for block in region.blocks
        for operation in walk(block, module.functions)
    )


def _inside(module: Module, block: Any) -> Iterator[Any]:
    yield from walk(block, module.functions)


def _queues(
    module: Module, operations: Sequence[Any], staged: frozenset[str]
) -> tuple[dict[str, Types], dict[str, Types]]:
    """Returns the element types of the staged infeeds and outfeeds among some operations."""
    infeeds: dict[str, Types] = {}
    outfeeds: dict[str, Types] = {}
    for operation in operations:
        name = feed_name(operation)
        if name is None or name not in staged:
            continue
        if custom_call_target(operation) == INFEED:
            infeeds[name] = tuple(Op(operation).results)
        else:
            outfeeds[name] = tuple(array_type(str(value.type)) for value in operation.operands)
    return infeeds, outfeeds
