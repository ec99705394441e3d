"""Partitions a program into straight-line parts and streamed loops, which use feeds.

    main:   a = f(x)           straight part
            while ...:         streamed loop: the host stages the infeed's elements in bounded chunks while the
                infeed             device runs the loop over the chunk before
                outfeed
            return g(a)        straight part

A loop is streamed where a queue is used straight in its body (once an iteration). A queue used deeper, in a loop
or branch inside the loop, is reached from the running program by an ordered callback instead: slower, same order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ipu_tf.lowering.stablehlo.accumulation_checks import accumulates, own_operations
from ipu_tf.lowering.stablehlo.module import INFEED, OUTFEED, Module, callee, custom_call_target, feed_name, walk
from ipu_tf.lowering.stablehlo.needed_hidden_state import ACCUMULATE

_COPIES = ("stablehlo.reshape", "stablehlo.convert", "mhlo.copy")


@dataclasses.dataclass(frozen=True)
class RunOp:
    """Step of a piece that runs one operation."""

    operation: Any


@dataclasses.dataclass(frozen=True)
class Rebind:
    """Step of a piece that binds values to other names: arguments or results of an inlined call."""

    targets: tuple[Any, ...]
    sources: tuple[Any, ...]


Step = RunOp | Rebind


@dataclasses.dataclass(frozen=True)
class StraightLinePiece:
    """Piece without a streamed loop: steps in order.

    Attributes:
        steps: what to run, in order.
        feeds: queues used here, outside of any loop or branch.
        live_in: names of earlier pieces (or parameters) that are read here or passed on.
        live_out: names that later pieces, or the program's results, read.
    """

    steps: tuple[Step, ...]
    feeds: frozenset[str]
    live_in: tuple[Any, ...] = ()
    live_out: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True)
class LoopPiece:
    """Piece that is one streamed loop.

    Attributes:
        operation: the `stablehlo.while`.
        feeds: the queues that are staged; others that the loop uses are reached by callback.
        sometimes: those of them that are outfeeds used in a branch, which not every iteration takes.
        feedless: whether it needs nothing of the host, and is a piece only so that the host may end it.
        live_in: names the loop reads, its initial values among them.
        live_out: names that later pieces read.
    """

    operation: Any
    feeds: frozenset[str]
    sometimes: frozenset[str] = frozenset()
    feedless: bool = False
    live_in: tuple[Any, ...] = ()
    live_out: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True)
class Partition:
    """Pieces of a program in order, and the names of its results.

    Attributes:
        pieces: its pieces.
        results: names of its results.
        same: names of copies, and what they are copies of. Nothing copies them.
    """

    pieces: tuple[StraightLinePiece | LoopPiece, ...]
    results: tuple[Any, ...]
    same: Mapping[Any, Any]


def partition(module: Module, in_chunks: Callable[[Any], bool] = lambda loop: False) -> Partition:
    """Partitions a module's program into pieces.

    Args:
        module: the module.
        in_chunks: whether a `stablehlo.while` outside of any other, which needs nothing of the host, becomes a piece as
            well: so that the host runs it chunk by chunk, and may end it.
    """
    steps = list(_flatten(module, module.main, (), in_chunks))
    *steps, last = steps
    assert isinstance(last, Rebind)
    pieces = [_piece(module, group, in_chunks) for group in _groups(module, steps, in_chunks)]
    # Between loops values stay where they are, each stage's of a pipeline on its own device.
    same = _copies(steps) if any(isinstance(piece, LoopPiece) for piece in pieces) else {}
    return Partition(_with_liveness(module, pieces, last.sources, same), last.sources, same)


def is_identity(operation: Any) -> bool:
    """Returns whether an operation returns its only operand unchanged."""
    if operation.name not in _COPIES or len(operation.results) != 1:
        return False
    return str(operation.operands[0].type) == str(operation.results[0].type)


def _copies(steps: Sequence[Step]) -> dict[Any, Any]:
    same: dict[Any, Any] = {}
    for step in steps:
        for target, source in _passed_through(step):
            same[target] = same.get(source, source)
    return same


def _passed_through(step: Step) -> list[tuple[Any, Any]]:
    """Returns the names that a step binds to values of other names, with those."""
    if isinstance(step, Rebind):
        return list(zip(step.targets, step.sources, strict=True))
    copies = is_identity(step.operation)
    return [(step.operation.results[0], step.operation.operands[0])] if copies else []


def _flatten(module: Module, block: Any, results: Sequence[Any], in_chunks: Callable[[Any], bool]) -> Iterator[Step]:
    """Flattens a block: inlines calls whose functions use feeds or streamed loops."""
    for operation in block.operations:
        operation = operation.operation
        if operation.name == "func.return":
            yield Rebind(tuple(results), tuple(operation.operands))
        elif operation.name == "func.call" and _calls_to_inline(module, operation, in_chunks):
            inner = module.functions[callee(operation)]
            yield Rebind(tuple(inner.arguments), tuple(operation.operands))
            yield from _flatten(module, inner, tuple(operation.results), in_chunks)
        else:
            yield RunOp(operation)


def _groups(module: Module, steps: list[Step], in_chunks: Callable[[Any], bool]) -> Iterator[list[Step]]:
    group: list[Step] = []
    for step in steps:
        if isinstance(step, RunOp) and _is_piece(module, step.operation, in_chunks):
            yield from ([group] if group else [])
            yield [step]
            group = []
        else:
            group.append(step)
    yield from ([group] if group else [])


def _piece(module: Module, group: list[Step], in_chunks: Callable[[Any], bool]) -> StraightLinePiece | LoopPiece:
    first = group[0]
    if isinstance(first, RunOp) and _is_piece(module, first.operation, in_chunks):
        loop = first.operation
        always, sometimes = _direct(module, loop), _in_branches(module, loop)
        feedless = not streamed(module, loop)
        return LoopPiece(loop, frozenset(always | sometimes), frozenset(sometimes), feedless=feedless)
    used = {feed_name(step.operation) for step in group if isinstance(step, RunOp)} - {None}
    return StraightLinePiece(tuple(group), frozenset(name for name in used if name))


def _is_piece(module: Module, operation: Any, in_chunks: Callable[[Any], bool]) -> bool:
    """Returns whether an operation is a loop that becomes a piece of its own."""
    return operation.name == "stablehlo.while" and (streamed(module, operation) or in_chunks(operation))


def _calls_to_inline(module: Module, call: Any, in_chunks: Callable[[Any], bool]) -> bool:
    """Returns whether a called function uses feeds or streamed loops, so that it has to be inlined."""
    block = module.functions[callee(call)]
    inner = walk(block, module.functions)
    if any(custom_call_target(operation) in (INFEED, OUTFEED, ACCUMULATE) for operation in inner):
        return True
    own = own_operations(module, block, branches=False)
    return any(operation.name == "stablehlo.while" and in_chunks(operation) for operation in own)


def _all_feeds(module: Module, operation: Any) -> set[str]:
    """Returns every queue used in an operation and its regions."""
    found = {feed_name(operation)}
    for region in operation.regions:
        for block in region.blocks:
            found |= {feed_name(inner) for inner in walk(block, module.functions)}
    if operation.name == "func.call":
        found |= {feed_name(inner) for inner in walk(module.functions[callee(operation)], module.functions)}
    return {name for name in found if name}


def _direct(module: Module, loop: Any) -> set[str]:
    """Returns the queues used in a loop's body once an iteration, and in no region of it."""
    uses = list(own_operations(module, loop.regions[1].blocks[0], branches=False))
    names = [name for name in map(feed_name, uses) if name]
    deeper: set[str] = set()
    for operation in uses:
        if operation.regions:
            deeper |= _all_feeds(module, operation)
    return {name for name in names if names.count(name) == 1} - deeper


def _in_branches(module: Module, loop: Any) -> set[str]:
    """Returns the outfeeds used once in a loop's body, in a branch."""
    body = loop.regions[1].blocks[0]
    everywhere = [feed_name(operation) for operation in walk(body, module.functions)]
    straight = {feed_name(operation) for operation in own_operations(module, body, branches=False)}
    own = [o for o in own_operations(module, body) if custom_call_target(o) == OUTFEED]
    return {name for name in map(feed_name, own) if name and name not in straight and everywhere.count(name) == 1}


def streamed(module: Module, loop: Any) -> bool:
    """Returns whether the host runs a loop chunk by chunk: it uses feeds, or has to be checked before it runs."""
    return bool(_direct(module, loop) or _in_branches(module, loop)) or accumulates(module, loop)


def _with_liveness(
    module: Module, pieces: list[StraightLinePiece | LoopPiece], results: Sequence[Any], same: Mapping[Any, Any]
) -> tuple[StraightLinePiece | LoopPiece, ...]:
    """Fills in the live-in and live-out names of each piece."""
    needed: dict[Any, None] = dict.fromkeys(same.get(name, name) for name in results)
    filled: list[StraightLinePiece | LoopPiece] = []
    for piece in reversed(pieces):
        defined = _definitions(piece)
        live_out = tuple(name for name in needed if name in defined)
        if same and isinstance(piece, StraightLinePiece):
            piece = dataclasses.replace(piece, steps=_without_unused_copies(piece.steps, live_out))
        needed = {name: None for name in needed if name not in defined}
        live_in = tuple(dict.fromkeys(name for name in _reads(module, piece) if name not in defined))
        needed.update(dict.fromkeys(same.get(name, name) for name in live_in))
        if piece.steps if isinstance(piece, StraightLinePiece) else True:
            filled.append(dataclasses.replace(piece, live_in=live_in, live_out=live_out))
    return tuple(reversed(filled))


def _without_unused_copies(steps: Sequence[Step], live_out: Sequence[Any]) -> tuple[Step, ...]:
    """Removes steps that only bind names which no other step reads."""
    wanted, kept = set(live_out), []
    for step in reversed(steps):
        pairs = _passed_through(step)
        used = [(target, source) for target, source in pairs if target in wanted]
        if isinstance(step, Rebind):
            step = Rebind(tuple(target for target, _ in used), tuple(source for _, source in used))
        if used or not pairs and not isinstance(step, Rebind):
            kept.append(step)
            wanted.update(step.sources if isinstance(step, Rebind) else names_read(step.operation))
    return tuple(reversed(kept))


def _definitions(piece: StraightLinePiece | LoopPiece) -> set[Any]:
    if isinstance(piece, LoopPiece):
        return set(piece.operation.results)
    return {
        name for step in piece.steps for name in (step.targets if isinstance(step, Rebind) else step.operation.results)
    }


def _reads(module: Module, piece: StraightLinePiece | LoopPiece) -> list[Any]:
    if isinstance(piece, LoopPiece):
        return names_read(piece.operation)
    names: list[Any] = []
    for step in piece.steps:
        names += step.sources if isinstance(step, Rebind) else names_read(step.operation)
    return names


def names_read(operation: Any) -> list[Any]:
    """Returns the outer names that an operation and its regions read."""
    names = list(operation.operands)
    own: set[Any] = set()
    for region in operation.regions:
        for block in region.blocks:
            own |= set(block.arguments)
            for inner in block.operations:
                names += names_read(inner.operation)
                own |= set(inner.operation.results)
    return [name for name in names if name not in own]
