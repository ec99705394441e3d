"""Chooses the ops that a stage recomputes for its backward pass, and the values it keeps for that.

    forward      inputs ─► a ─► b ─► c ─► outputs          keeps nothing but what `again` starts from
    again        inputs ─► a ─► b ─► c                     just before the backward pass, which takes a, b, c

Where the backward pass itself recomputes, and the stage has checkpoints, it does so part by part: the activations of
one part alone are there at a time.

    backward     kept ─► c ─► gradients as far as the checkpoint, kept ─► a ─► b ─► gradients of the stage's inputs

Kept are the values at which the way back from what the backward pass takes ends: what came from other stages or the
infeed, what is marked as a checkpoint, and what cannot be computed twice, such as the state of a moving average. Random
draws can: they start from the same seeds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ipu_tf.device.memory.hidden_state import SEED
from ipu_tf.lowering.stablehlo.module import Module, custom_call_target
from ipu_tf.lowering.stablehlo.needed_hidden_state import types_in
from ipu_tf.lowering.stages.flat_step import FlatOp
from ipu_tf.lowering.stages.stage_checks import EFFECTS, inside
from ipu_tf.lowering.stages.stage_cut import StageCut


@dataclasses.dataclass(frozen=True)
class RecomputedOps:
    """Ops of a forward pass that are recomputed.

    Attributes:
        places: the nodes, by their places in `StageCut.live`, in order.
        constants: values they read that no micro-batch makes.
        kept: values of the micro-batch that they start from, or that the backward pass takes as they are.
        outputs: what they give the backward pass.
    """

    places: tuple[int, ...]
    constants: tuple[int, ...]
    kept: tuple[int, ...]
    outputs: tuple[int, ...]


def repeated(
    module: Module,
    cut: StageCut,
    aliases: Mapping[int, int],
    checkpoints: frozenset[int],
    stage: int,
    wanted: Iterable[int],
) -> RecomputedOps:
    """Returns the ops that a stage recomputes.

    Args:
        module: where the step is.
        cut: the step, cut.
        aliases: what each marker passes on.
        checkpoints: values that are to be kept.
        stage: the stage.
        wanted: what its backward pass takes of its forward pass.
    """
    return _Walk(module, cut, aliases, checkpoints, stage).back_from(wanted)


def part_by_part(
    cut: StageCut,
    aliases: Mapping[int, int],
    checkpoints: frozenset[int],
    again: RecomputedOps,
    backward: Iterable[int],
) -> list[list[int]]:
    """Returns the ops that are recomputed and those of the backward pass as one: phases, the last part's first.

    Args:
        cut: the step, cut.
        aliases: what each marker passes on.
        checkpoints: values that are kept.
        again: what the stage recomputes.
        backward: the nodes of its backward pass, in order.
    """
    part = _parts(cut, aliases, checkpoints)
    order = sorted({part[value] for value in again.outputs}, reverse=True)
    phase = {value: order.index(part[value]) for value in again.outputs}
    first = dict(phase)  # of values: the phase in which they are needed first
    found: list[list[int]] = [[] for _ in order]
    for place in reversed(again.places):
        node = cut.live[place]
        needed = min((first[value] for value in node.results if value in first), default=0)
        found[needed].append(place)
        for value in (followed(aliases, each) for each in node.operands):
            first[value] = min(needed, first.get(value, needed))
    found = [sorted(places) for places in found]
    for place in backward:
        node = cut.live[place]
        now = max((phase.get(followed(aliases, value), 0) for value in node.operands), default=0)
        phase |= {value: now for value in node.results if value not in phase}
        found[now] += [place] if place not in again.places else []
    return [places for places in found if places]


def _parts(cut: StageCut, aliases: Mapping[int, int], checkpoints: frozenset[int]) -> dict[int, int]:
    """Returns for each value how many checkpoints are before it."""
    part: dict[int, int] = {}
    for node in cut.live:
        before = (followed(aliases, value) for value in node.operands)
        part |= dict.fromkeys(node.results, max((part.get(v, 0) + (v in checkpoints) for v in before), default=0))
    return part


class _Walk:
    """Walks back from values to the ops that compute them."""

    def __init__(
        self, module: Module, cut: StageCut, aliases: Mapping[int, int], checkpoints: frozenset[int], stage: int
    ) -> None:
        self._module, self._cut, self._aliases = module, cut, aliases
        self._checkpoints, self._level = checkpoints, stage
        self._maker = {value: place for place, node in enumerate(cut.live) for value in node.results}
        self._places: set[int] = set()
        self._constants: dict[int, None] = {}
        self._kept: dict[int, None] = {}
        self._seen: set[int] = set()

    def back_from(self, wanted: Iterable[int]) -> RecomputedOps:
        """Finds the ops to recompute, and the values to keep, for some values."""
        wanted = list(wanted)
        waiting = list(wanted)
        while waiting:
            value = waiting.pop()
            if value not in self._seen:
                self._seen.add(value)
                waiting += self._before(value)
        outputs = tuple(value for value in wanted if value not in self._kept)
        return RecomputedOps(tuple(sorted(self._places)), tuple(self._constants), tuple(self._kept), outputs)

    def _before(self, value: int) -> list[int]:
        """Returns the values that a value is computed from; none if it is kept or constant."""
        place = self._maker.get(value)
        level = self._cut.made_at.get(value)
        if level is None and place is None:
            self._constants[value] = None
        elif place is None or (level is not None and (level != self._level or not self._may_repeat(place, value))):
            self._kept[value] = None
        else:
            self._places.add(place)
            return [found for operand in self._cut.live[place].operands for found in self._operand(place, operand)]
        return []

    def _operand(self, place: int, operand: int) -> list[int]:
        """Resolves an operand of a node; a value that another stage computed for it is kept."""
        value = followed(self._aliases, operand)
        if (place, operand) not in self._cut.sent:
            return [value]
        self._kept[value] = None
        return []

    def _may_repeat(self, place: int, value: int) -> bool:
        return value not in self._checkpoints and is_pure(self._module, self._cut.live[place])


def followed(aliases: Mapping[int, int], value: int) -> int:
    """Resolves a value through markers that pass it on unchanged."""
    while value in aliases:
        value = aliases[value]
    return value


def is_pure(module: Module, node: FlatOp) -> bool:
    """Returns whether a node has no side effects, and the same results for the same operands and seed."""
    if custom_call_target(node.operation) in EFFECTS:
        return False
    return not types_in(inside(module, node), module).keys() - {SEED}
