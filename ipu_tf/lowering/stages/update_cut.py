"""Assigns the ops of the weight update to stages.

An operation runs with the stage of its largest operand: a variable's new value where the variable is. What several
stages share, such as a learning rate or the norm of all gradients, is a scalar of the first stage and is sent. The
operations of one stage that need nothing more of other stages form one step; steps run level by level.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np

from ipu_tf.lowering.stablehlo.module import OUTFEED, custom_call_target
from ipu_tf.lowering.stages.flat_step import FlatLoopBody, FlatOp
from ipu_tf.lowering.stages.stage_cut import StageCut
from ipu_tf.lowering.tensorflow.host_calls import HOST_CALLS

_ALWAYS = frozenset({OUTFEED, *HOST_CALLS})
"""Calls of an update that happen whether or not a variable's new value depends on them."""
_SPREADING = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.convert")


@dataclasses.dataclass(frozen=True)
class UpdateSegment:
    """Part of an update that one stage computes without waiting for others.

    Attributes:
        level: after how many exchanges between stages it can run.
        stage: the stage.
        nodes: what it computes, in order.
        inputs: values that it reads.
        outputs: values that other pieces or variables take.
    """

    level: int
    stage: int
    nodes: tuple[FlatOp, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class UpdateAssignment:
    """Assignment of a weight update's ops to stages.

    Attributes:
        pieces: in an order in which they can run.
        homes: the stage of every variable that changes, in micro-batches or in the update.
    """

    pieces: tuple[UpdateSegment, ...]
    homes: Mapping[int, int]


def cut_update(step: FlatLoopBody, cut: StageCut) -> UpdateAssignment:
    """Assigns the ops of a step's weight update to stages."""
    nodes = _needed(cut)
    first = _UpdateStages(step, cut, nodes, cut.homes)
    homes = {weight: first.wanted_by(weight) for weight in cut.weights} | dict(cut.homes)
    return _UpdateSegments(step, cut, _UpdateStages(step, cut, nodes, homes), homes).cut()


def _needed(cut: StageCut) -> tuple[FlatOp, ...]:
    """Returns the nodes that the update runs, and those of them that micro-batches run as well."""
    wanted = set(cut.weights.values())
    found = []
    for place, node in reversed(list(enumerate(cut.live))):
        always = node.on_update and custom_call_target(node.operation) in _ALWAYS
        if place not in cut.level and (always or wanted & set(node.results)):
            wanted.update(node.operands)
            found.append(node)
    return tuple(reversed(found))


class _UpdateStages:
    """Stages of the values and nodes of an update; none for what every stage can compute."""

    def __init__(self, step: FlatLoopBody, cut: StageCut, nodes: tuple[FlatOp, ...], homes: Mapping[int, int]) -> None:
        self.nodes = nodes
        self._types = step.types
        # For each value its stage, and how many bytes would have to be sent to have it elsewhere.
        self._known = {value: (cut.stage_of(level), self._bytes(value)) for value, level in cut.made_at.items()}
        self._known |= {value: (stage, self._bytes(value)) for value, stage in homes.items() if value in cut.weights}
        self.of_node: dict[int, int] = {}
        self.maker: dict[int, int] = {}
        for place, node in enumerate(nodes):
            self._place(place, node)

    def _place(self, place: int, node: FlatOp) -> None:
        self.maker.update(dict.fromkeys(node.results, place))
        known = [self._known[value] for value in node.operands if value in self._known]
        if not known:
            if custom_call_target(node.operation) in _ALWAYS:
                self.of_node[place] = 0
            return
        stage, size = max(known, key=lambda each: (each[1], -each[0]))
        if self._spreads(node):
            self._known.update(dict.fromkeys(node.results, (stage, size)))
            return
        self.of_node[place] = stage
        self._known.update((value, (stage, self._bytes(value))) for value in node.results)

    def _spreads(self, node: FlatOp) -> bool:
        """Returns whether a node only broadcasts a scalar, which is cheaper to recompute than to send."""
        return node.operation.name in _SPREADING and _size(self._types[node.operands[0]]) == 1

    def wanted_by(self, value: int) -> int:
        """Returns the stage whose nodes read a value, directly or not; the first one if several do."""
        wanted: dict[int, set[int]] = {}
        for place, node in reversed(list(enumerate(self.nodes))):
            here = {self.of_node[place]} if place in self.of_node else set()
            for result in node.results if not here else ():
                here |= wanted.get(result, set())
            for operand in node.operands:
                wanted.setdefault(operand, set()).update(here)
        stages = wanted.get(value, set())
        return stages.pop() if len(stages) == 1 else 0

    def _bytes(self, value: int) -> int:
        kind = self._types[value]
        return _size(kind) * np.dtype(kind.dtype).itemsize if kind is not None else 0


class _UpdateSegments:
    """Groups the nodes of an update into segments."""

    def __init__(self, step: FlatLoopBody, cut: StageCut, where: _UpdateStages, homes: Mapping[int, int]) -> None:
        self._cut, self._where, self._homes = cut, where, homes
        self._level: dict[int, int] = {}
        self._nodes: dict[tuple[int, int], list[int]] = {}
        self._wanted: dict[tuple[int, int], dict[int, None]] = {}

    def cut(self) -> UpdateAssignment:
        for place, node in enumerate(self._where.nodes):
            if place in self._where.of_node:
                stage = self._where.of_node[place]
                self._level[place] = max((self._ready(value, stage) for value in node.operands), default=0)
                self._nodes.setdefault((self._level[place], stage), []).append(place)
        for weight, value in self._cut.weights.items():
            stage = self._homes[weight]
            self._wanted.setdefault((self._ready(value, stage), stage), {})[value] = None
        keys = sorted({*self._nodes, *self._wanted})
        parts = {key: self._part(key) for key in keys}
        for key, (_, inputs) in parts.items():
            for value in inputs:
                self._take_from_its_maker(value, key)
        pieces = [
            UpdateSegment(*key, nodes, inputs, tuple(self._wanted.get(key, ())))
            for key, (nodes, inputs) in parts.items()
        ]
        return UpdateAssignment(tuple(pieces), self._homes)

    def _ready(self, value: int, stage: int) -> int:
        """Returns the level at which a value is available on a stage."""
        place = self._where.maker.get(value)
        if place is None:
            return 0
        if place in self._where.of_node:
            return self._level[place] + (self._where.of_node[place] != stage)
        return max((self._ready(operand, stage) for operand in self._where.nodes[place].operands), default=0)

    def _part(self, key: tuple[int, int]) -> tuple[tuple[FlatOp, ...], tuple[int, ...]]:
        """Returns the nodes of a segment, with unassigned ones that it needs, and the values it reads."""
        own = set(self._nodes.get(key, ()))
        places: dict[int, None] = {}
        inputs: dict[int, None] = {}

        def want(value: int) -> None:
            place = self._where.maker.get(value)
            if place is None or (place in self._where.of_node and place not in own):
                inputs[value] = None
            elif place not in places:
                add(place)

        def add(place: int) -> None:
            for operand in self._where.nodes[place].operands:
                want(operand)
            places[place] = None

        for place in sorted(own):
            if place not in places:
                add(place)
        for value in self._wanted.get(key, {}):
            want(value)
        return tuple(self._where.nodes[place] for place in places), tuple(inputs)

    def _take_from_its_maker(self, value: int, key: tuple[int, int]) -> None:
        place = self._where.maker.get(value)
        if place is not None:
            self._wanted.setdefault((self._level[place], self._where.of_node[place]), {})[value] = None


def _size(kind: jax.ShapeDtypeStruct | None) -> int:
    return int(np.prod(kind.shape)) if kind is not None else 0
