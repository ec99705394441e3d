"""Builds a device `Program` from a StableHLO module."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipu_tf.device.op_locations import described
from ipu_tf.device.program.program import Hidden, LoopPart, Part, Program, StraightLinePart
from ipu_tf.lowering.importer.half_precision import checked_origins, with_numerics
from ipu_tf.lowering.importer.interpreter import Interpreter
from ipu_tf.lowering.importer.numerics import Numerics
from ipu_tf.lowering.importer.part_feeds import PartFeeds, queue_types
from ipu_tf.lowering.importer.rules.deferred_products import deferred_products
from ipu_tf.lowering.importer.true_checks import remove_true_checks
from ipu_tf.lowering.importer.unsupported_ops import check_supported
from ipu_tf.lowering.programs.part_functions import LoopFunctions, straight_line_function
from ipu_tf.lowering.stablehlo.accumulation_checks import (
    accumulation_counts_of_body,
    accumulation_location_of_body,
    check_inside_loops,
)
from ipu_tf.lowering.stablehlo.check_markers import checks_of
from ipu_tf.lowering.stablehlo.duration import runs_long
from ipu_tf.lowering.stablehlo.module import OUTFEED, Module, configuration, custom_call_target, feed_name, walk
from ipu_tf.lowering.stablehlo.needed_hidden_state import FIFO, hidden_types, types_in
from ipu_tf.lowering.stablehlo.op import Op
from ipu_tf.lowering.stablehlo.partition import LoopPiece, Rebind, StraightLinePiece, partition
from ipu_tf.lowering.stablehlo.trip_count import is_counted_by_constants, most_trips, trip_count
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
    cut = partition(module, lambda loop: _in_chunks(module, loop))
    names = _SlotNumbers(module, cut.same)
    operations = list(walk(module.main, module.functions))
    feeds = {name for name in map(feed_name, operations) if name}
    _check_enqueues(operations, module)
    _check_delay_lines(operations, module)
    check_inside_loops(module)
    staged = {name for piece in cut.pieces for name in piece.feeds}
    return Program(
        name=module.name,
        parameters=module.parameters,
        parts=tuple(_part(module, piece, names, replicas) for piece in cut.pieces),
        results=names.slots(cut.results),
        aliases=module.aliases,
        hidden=hidden_types(module),
        replicas=replicas,
        uses_callbacks=bool(feeds - staged) or calls_host(operations),
        called_back=tuple(sorted(feeds - staged)),
        checked=checked_origins(module),
        checks=checks_of(module),
        source=module.source,
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
    condition = list(walk(loop.regions[0].blocks[0], module.functions))
    if types_in(condition, module) or calls_host(condition):
        return False  # each chunk would evaluate it once more: a condition with state is evaluated in the loop's body
    return runs_long(module, loop) and deferred_products(module, loop, most_trips(module, loop)) is None


def _same_for_replicas(module: Module, loop: Any, replicas: int) -> bool:
    """Returns whether several replicas end a loop at the same time: else each may, with values of its own."""
    return replicas > 1 and is_counted_by_constants(module, loop)


def _check_enqueues(operations: Sequence[Any], module: Module) -> None:
    enqueues: dict[str | None, list[Any]] = {}
    for operation in operations:
        if custom_call_target(operation) == OUTFEED:
            enqueues.setdefault(feed_name(operation), []).append(operation)
    for several in (several for several in enqueues.values() if len(several) > 1):
        locations = [module.location_of(Op(operation).origin) for operation in several]
        raise ValueError(f"An outfeed can only be enqueued once.\n{described(locations)}")


def _check_delay_lines(operations: Sequence[Any], module: Module) -> None:
    """Checks that each `fifo` is one op of the program: calls of a function that has one would share its line."""
    lines: dict[str, list[Any]] = {}
    for operation in operations:
        if custom_call_target(operation) == FIFO:
            lines.setdefault(configuration(operation)["key"], []).append(operation)
    for several in (several for several in lines.values() if len(several) > 1):
        locations = [module.location_of(Op(operation).origin) for operation in several]
        raise ValueError(
            "A `fifo` in a `tf.function` that a program calls more than once would be one line for all calls. Call a "
            f"plain Python function instead.\n{described(locations)}"
        )


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
    infeeds, outfeeds = queue_types(operations, piece.feeds)

    run = straight_line_function(module, piece, tuple(outfeeds), replicas)
    return StraightLinePart(run, names.slots(piece.live_in), names.slots(piece.live_out), infeeds, outfeeds)


def _loop_part(module: Module, piece: LoopPiece, names: _SlotNumbers, replicas: int) -> LoopPart:
    loop = piece.operation
    infeeds, outfeeds = queue_types(_inside(module, loop.regions[1].blocks[0]), piece.feeds)
    initial = tuple(loop.operands)
    constants = tuple(name for name in piece.live_in if name not in set(initial) or _read_inside(module, loop, name))
    functions = LoopFunctions(module, piece, constants, outfeeds, replicas)
    read_later = set(piece.live_out)
    return LoopPart(
        step=functions.step,
        goes_on=functions.goes_on,
        trip_count=None
        if piece.feedless and not _same_for_replicas(module, loop, replicas)
        else trip_count(module, loop),
        feedless=piece.feedless,
        carry_in=names.slots(initial),
        constants=names.slots(constants),
        carry_out=tuple(names.slots([name])[0] if name in read_later else None for name in loop.results),
        infeeds=infeeds,
        outfeeds=outfeeds,
        accumulation_counts=accumulation_counts_of_body(module, loop),
        accumulated_at=accumulation_location_of_body(module, loop),
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
