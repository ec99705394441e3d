"""Assigns each op of a pipelined step to a stage and pass, by dataflow from the stage markers.

Levels count the segments that a micro-batch passes: with N stages F(s) is level s and B(s) is level 2 N - 1 - s. An
operation's level is the highest of its operands'; a marker after stage b starts level F(b + 1), or on a gradient B(b).

What depends on no micro-batch has no level: such operations are computed wherever they are wanted. Weights among their
operands anchor them to the weights' stage: what is wanted elsewhere is computed there and sent, and an operation of a
backward pass that reads another stage's weights moves to that stage's backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ipu_tf.lowering.stablehlo.accumulation_checks import own_operations
from ipu_tf.lowering.stablehlo.module import INFEED, OUTFEED, Module, custom_call_target
from ipu_tf.lowering.stablehlo.needed_hidden_state import ACCUMULATE, FIFO
from ipu_tf.lowering.stablehlo.stage_markers import StageMarker, stage_marker_of
from ipu_tf.lowering.stages.flat_step import CannotCutPipelineError, FlatLoopBody, FlatOp
from ipu_tf.lowering.stages.stage_checks import EFFECTS, check_cuttable, origin
from ipu_tf.lowering.stages.stage_cut import StageCut, StepSignature, stage_of

_NONE, _UPDATE = -1, -2


def pipeline_of(module: Module, block: Any) -> StageMarker | None:
    """Returns the pipeline whose markers are in a block itself; None if there are none.

    Raises:
        CannotCutPipelineError: for the markers of several pipelines.
    """
    marks = {mark.pipeline() for mark in map(stage_marker_of, own_operations(module, block)) if mark}
    if len(marks) > 1:
        raise CannotCutPipelineError("one loop runs several pipelines")
    return marks.pop() if marks else None


def cut(module: Module, step: FlatLoopBody, shape: StepSignature, mark: StageMarker) -> StageCut:
    """Cuts a step into stages.

    Raises:
        CannotCutPipelineError: saying what stands against it.
    """
    return _StageAssigner(module, step, shape, mark).cut()


class _StageAssigner:
    """Assigns the ops and values of one step to stages."""

    def __init__(self, module: Module, step: FlatLoopBody, shape: StepSignature, mark: StageMarker) -> None:
        self.module, self.step, self.shape, self.mark = module, step, shape, mark
        self.states, self.weights = _written(step, shape)
        self.live = _live(step, shape, self.states, self.weights)
        self.base: dict[int, int] = {}
        self.level: dict[int, int] = {}
        self.made_at: dict[int, int] = {}
        self.sent: dict[tuple[int, int], int] = {}
        self.anchors: dict[int, frozenset[int]] = {}

    def cut(self) -> StageCut:
        check_cuttable(self.module, self.step, self.live, self.mark)
        self._find_base_levels()
        reach = self._reach()
        self.homes = self._homes(reach)
        self._place(reach)
        draws, total = self._draws()
        return StageCut(
            mark=self.mark,
            live=self.live,
            level=self.level,
            made_at=self.made_at,
            sent=self.sent,
            homes=self.homes,
            states=self.states,
            weights=self.weights,
            draws=draws,
            total_draws=total,
        )

    def _find_base_levels(self) -> None:
        """Computes the levels that follow from dataflow alone."""
        for values in self.shape.elements.values():
            self.base.update(dict.fromkeys(values, 0))
        for node in self.live:
            if not node.on_update:
                self.base.update(dict.fromkeys(node.results, self._base(node)))

    def _base(self, node: FlatOp) -> int:
        highest = max((self.base.get(value, _NONE) for value in node.operands), default=_NONE)
        if custom_call_target(node.operation) == INFEED:
            return 0
        mark = stage_marker_of(node.operation)
        return highest if mark is None else max(highest, self._marked_level(mark))

    def _marked_level(self, mark: StageMarker) -> int:
        """Returns the level that a marker starts. The loss belongs to the last stage's forward pass."""
        if mark.backward:
            return 2 * mark.stages - 1 - mark.stage
        return min(mark.stage + 1, mark.stages - 1)

    def _reach(self) -> dict[int, set[int]]:
        """Returns for each value without a level the levels that first read it; `_UPDATE` for the update."""
        reach: dict[int, set[int]] = {}
        for node in reversed(self.live):
            if node.on_update:
                wanted = {_UPDATE}
            elif self.base[node.results[0]] != _NONE:
                wanted = {self._consumers_at(node)}
            else:
                wanted = set().union(*(reach.get(result, set()) for result in node.results))
            for value in node.operands:
                if self.base.get(value, _NONE) == _NONE:
                    reach.setdefault(value, set()).update(wanted)
        return reach

    def _consumers_at(self, node: FlatOp) -> int:
        """Returns the level at which a node reads its operands: a forward marker, at the end of its stage."""
        level, mark = self.base[node.results[0]], stage_marker_of(node.operation)
        return level if mark is None or mark.backward else min(level, mark.stage)

    def _homes(self, reach: Mapping[int, set[int]]) -> dict[int, int]:
        """Returns the stage of every state and weight that a micro-batch uses."""
        homes = {}
        for value in (*self.states, *self.weights):
            wanted = reach.get(value, set()) - {_UPDATE}
            if wanted:
                homes[value] = stage_of(self.mark, min(wanted))
            elif value in self.states:
                homes[value] = 0
        return homes

    def _place(self, reach: Mapping[int, set[int]]) -> None:
        for values in self.shape.elements.values():
            self.made_at.update(dict.fromkeys(values, 0))
        for value in self.states:
            self.made_at[value] = min(reach.get(value, set()) - {_UPDATE}, default=0)
        self.anchors.update({value: frozenset({self.homes[value]}) for value in self.weights if value in self.homes})
        for place, node in enumerate(self.live):
            if node.on_update:
                continue
            level = self._level(place, node, reach)
            if level is None:
                anchors = frozenset().union(*(self.anchors.get(value, frozenset()) for value in node.operands))
                self.anchors.update(dict.fromkeys(node.results, anchors))
            else:
                self.level[place] = level
                self.made_at.update(dict.fromkeys(node.results, level))

    def _level(self, place: int, node: FlatOp, reach: Mapping[int, set[int]]) -> int | None:
        """Returns the level of a node whose operands have theirs; None if it is computed wherever it is read."""
        level = max((self.made_at[value] for value in node.operands if value in self.made_at), default=_NONE)
        mark = stage_marker_of(node.operation)
        if mark is not None:
            return self._level_of_marker(place, node, mark, level)
        if custom_call_target(node.operation) == INFEED:
            return 0
        if level == _NONE and self._pinned(node):
            level = self._level_of_effect(node, reach)
        anchored = {value: self.anchors.get(value, frozenset()) for value in node.operands}
        if level == _NONE:
            stages = frozenset().union(*anchored.values())
            if len({self._device(stage) for stage in stages}) <= 1:
                return None
            level = max(stages)
        return self._level_beside_weights(place, level, anchored)

    def _level_of_effect(self, node: FlatOp, reach: Mapping[int, set[int]]) -> int:
        """Returns the level of a node with side effects that reads nothing of a micro-batch."""
        wanted = set().union(*(reach.get(result, set()) for result in node.results)) - {_UPDATE}
        last = self.mark.stages - 1 if custom_call_target(node.operation) == OUTFEED else 0
        return min(wanted, default=last)

    def _level_beside_weights(self, place: int, level: int, anchored: Mapping[int, frozenset[int]]) -> int:
        """Returns the level, from `level` on, of a node of which operands belong to the weights of some stages.

        It moves to the stage of these weights where it may; what then still lies elsewhere is sent.
        """
        stages = frozenset().union(*anchored.values())
        foreign = self._foreign(stages, level)
        if not foreign:
            return level
        if level >= self.mark.stages:
            later = self._backward_on({self._device(stage) for stage in foreign}, level)
            if later is not None:
                return later
        elif max(stages) > level:
            level = max(stages)  # what the weights of a later stage go into belongs to that stage
            foreign = self._foreign(stages, level)
        for value, anchors in anchored.items():
            if anchors & foreign:
                self._send(place, value, min(anchors & foreign), level)
        return level

    def _foreign(self, stages: frozenset[int], level: int) -> set[int]:
        """Returns those of some stages that are on another device than a level."""
        own = self._device(stage_of(self.mark, level))
        return {stage for stage in stages if self._device(stage) != own}

    def _level_of_marker(self, place: int, node: FlatOp, mark: StageMarker, level: int) -> int:
        starts = self._marked_level(mark)
        if level > starts:
            raise CannotCutPipelineError(
                f"the output of stage {mark.stage} depends on a later pass: on {self._pass(level)} (stages share a "
                f"variable, or hand tensors past each other; {origin(self.module, node)})"
            )
        [value] = node.operands
        anchors = self.anchors.get(value, frozenset())
        if anchors:
            self._send(place, value, min(anchors), starts)
        return starts

    def _send(self, place: int, value: int, stage: int, level: int) -> None:
        if value in self.weights:
            raise CannotCutPipelineError(
                f"a variable of {self._type(value)} is used by stage {stage} on device {self._device(stage)} and by "
                f"{self._pass(level)} on device {self._device(stage_of(self.mark, level))}"
            )
        if self._device(stage) != self._device(stage_of(self.mark, level)):
            self.sent[place, value] = stage

    def _backward_on(self, devices: set[int], level: int) -> int | None:
        """Returns the first backward pass, from a level on, on the only one of these devices."""
        for later in range(level, 2 * self.mark.stages):
            if devices == {self._device(stage_of(self.mark, later))}:
                return later
        return None

    def _pinned(self, node: FlatOp) -> bool:
        """Returns whether a node has side effects: it runs once a micro-batch, on one stage."""
        target = custom_call_target(node.operation)
        return target in EFFECTS or target in (ACCUMULATE, FIFO) or node.operation.name == "stablehlo.rng"

    def _draws(self) -> tuple[dict[int, int], int]:
        # Nodes that nothing depends on draw too where the program is one loop.
        drawing = [n.results for n in self.step.nodes if n.operation.name == "stablehlo.rng" and not n.on_update]
        places = {results: number for number, results in enumerate(drawing)}
        draws = {p: places[node.results] for p, node in enumerate(self.live) if node.results in places}
        return draws, len(drawing)

    def _device(self, stage: int) -> int:
        return int(self.mark.mapping[stage])

    def _pass(self, level: int) -> str:
        kind = "forward" if level < self.mark.stages else "backward"
        return f"the {kind} pass of stage {stage_of(self.mark, level)}"

    def _type(self, value: int) -> str:
        kind = self.step.types[value]
        return f"shape {kind.shape} and dtype {np.dtype(kind.dtype).name}" if kind is not None else "unknown shape"


def _written(step: FlatLoopBody, shape: StepSignature) -> tuple[dict[int, int], dict[int, int]]:
    """Returns the states and the weights of a step, each with its new value."""
    states, weights = {}, {}
    for value, position in shape.carried.items():
        plain, updated = step.results[position], step.updated[position]
        if plain != value and updated != plain:
            raise CannotCutPipelineError("a variable is changed both by every micro-batch and by the update")
        if plain != value:
            states[value] = plain
        elif updated != value:
            weights[value] = updated
    return states, weights


def _live(
    step: FlatLoopBody, shape: StepSignature, states: Mapping[int, int], weights: Mapping[int, int]
) -> tuple[FlatOp, ...]:
    """Returns the nodes that variables, outfeeds or host calls depend on."""
    outputs = (step.results[position] for positions in shape.outputs.values() for position in positions)
    wanted = {*states.values(), *weights.values(), *outputs}
    found = []
    for node in reversed(step.nodes):
        if custom_call_target(node.operation) in EFFECTS or wanted & set(node.results):
            wanted.update(node.operands)
            found.append(node)
    return tuple(reversed(found))
