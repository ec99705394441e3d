"""Builds a `StageProgram` from a loop with stage markers: gathers the ops of each pass of each stage."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from ipu_tf.device.program.stage_program import StageProgram, StageSegment, UpdateStep
from ipu_tf.device.schedule.timetable import Recomputation, TaskKind
from ipu_tf.lowering.stablehlo.module import Module, configuration, custom_call_target
from ipu_tf.lowering.stablehlo.needed_hidden_state import ACCUMULATE
from ipu_tf.lowering.stablehlo.stage_markers import CHECKPOINT, StageMarker, stage_marker_of
from ipu_tf.lowering.stages.flat_step import CannotCutPipelineError, FlatLoopBody
from ipu_tf.lowering.stages.recompute_cut import RecomputedOps, followed, part_by_part, repeated
from ipu_tf.lowering.stages.stage_assigner import cut
from ipu_tf.lowering.stages.stage_cut import StageCut, StepSignature
from ipu_tf.lowering.stages.stage_tracer import PassOps, StageTracer, UpdateOps
from ipu_tf.lowering.stages.update_cut import UpdateSegment, cut_update


def stage_program(
    module: Module,
    step: FlatLoopBody,
    shape: StepSignature,
    mark: StageMarker,
    carried: Sequence[int | None],
    outer: Sequence[int | None],
    replicas: int = 1,
) -> StageProgram:
    """Builds the stage program of a pipelined loop.

    Args:
        module: where the loop is.
        step: an iteration of it.
        shape: what its values stand for.
        mark: the pipeline, as the markers have it.
        carried: for each value that the loop carries its number in the step; None for one that the step has not.
        outer: the same for the other values that the loop reads.
        replicas: how many replicas the program runs as.

    Raises:
        CannotCutPipelineError: saying what stands against it.
    """
    if any(not isinstance(where, int) or where < 0 for where in mark.mapping):
        raise CannotCutPipelineError(f"a stage is on several devices (the mapping is {mark.mapping})")
    return _Builder(module, step, shape, cut(module, step, shape, mark), replicas).build(carried, outer)


@dataclasses.dataclass
class _Pass:
    """Segment while it is built: the pass of a level, or the recomputation of one."""

    level: int
    again: bool = False
    nodes: dict[int, None] = dataclasses.field(default_factory=dict)
    constants: dict[int, None] = dataclasses.field(default_factory=dict)
    inputs: dict[int, None] = dataclasses.field(default_factory=dict)
    outputs: dict[int, None] = dataclasses.field(default_factory=dict)
    phases: tuple[int, ...] = ()
    """Where, among its nodes, one begins that must not begin before those in front of it have ended."""


_UNKNOWN = -1


class _Builder:
    """Builds the stage program of one step."""

    def __init__(self, module: Module, step: FlatLoopBody, shape: StepSignature, cut: StageCut, replicas: int) -> None:
        self._module, self._step, self._shape, self._cut = module, step, shape, cut
        self._maker = {value: place for place, node in enumerate(cut.live) for value in node.results}
        self._alias, self._checkpoints = self._aliases()
        self._passes = [_Pass(level) for level in range(cut.mark.stages * (2 if cut.mark.training else 1))]
        self._update = cut_update(step, cut)
        self._output_levels = self._levels_of_outputs()
        self._tracer = StageTracer(module, step, self._alias, replicas)

    def build(self, carried: Sequence[int | None], outer: Sequence[int | None]) -> StageProgram:
        for each in self._passes:
            self._gather(each)
        accumulators = self._accumulators()
        for value in {v for piece in self._update.pieces for v in map(self._behind, piece.inputs)} - set(accumulators):
            if value in self._cut.made_at:
                self._passes[self._cut.made_at[value]].outputs[value] = None
        mark = self._cut.mark
        recomputation = Recomputation[mark.recomputation] if mark.training else Recomputation.NONE
        stages = range(mark.stages - 1 if recomputation is not Recomputation.NONE else 0)
        passes = [*self._passes, *[self._repeated(stage) for stage in stages]]
        return StageProgram(
            mapping=mark.mapping,
            schedule=mark.schedule,
            training=mark.training,
            count=mark.count,
            segments=tuple(self._segment(each) for each in passes),
            updates=tuple(self._update_step(i, piece) for i, piece in enumerate(self._update.pieces)),
            carried=tuple(_UNKNOWN if value is None else value for value in carried),
            outer=tuple(_UNKNOWN if value is None else value for value in outer),
            homes=self._update.homes,
            written={weight: self._behind(value) for weight, value in self._cut.weights.items()},
            accumulators=accumulators,
            draws=self._cut.total_draws,
            recomputation=recomputation,
        )

    def _aliases(self) -> tuple[dict[int, int], frozenset[int]]:
        """Returns the value that each marker and checkpoint passes on; markers of values computed for it stay."""
        found, checkpoints = {}, []
        for place, node in enumerate(self._cut.live):
            is_checkpoint = custom_call_target(node.operation) == CHECKPOINT
            if is_checkpoint or (stage_marker_of(node.operation) and (place, node.operands[0]) not in self._cut.sent):
                found[node.results[0]] = node.operands[0]
                checkpoints += [node.operands[0]] if is_checkpoint else []
        return found, frozenset(followed(found, value) for value in checkpoints)

    def _behind(self, value: int) -> int:
        return followed(self._alias, value)

    def _levels_of_outputs(self) -> dict[str, int]:
        """Returns the pass that computes the element of each outfeed that is a result of the step.

        Raises:
            CannotCutPipelineError: if the update changes one, which ends after the last pass of its micro-batch.
        """
        last = self._cut.mark.stages - 1
        places = [place for places in self._shape.outputs.values() for place in places]
        if any(self._step.results[place] != self._step.updated[place] for place in places):
            raise CannotCutPipelineError("it gives a value that the update changes in the same micro-batch")
        values = {name: [self._step.results[p] for p in places] for name, places in self._shape.outputs.items()}
        return {name: max((self._cut.made_at.get(v, last) for v in of), default=last) for name, of in values.items()}

    def _outfeed_element(self, queue: str) -> tuple[int, ...]:
        return tuple(self._behind(self._step.results[position]) for position in self._shape.outputs[queue])

    def _states(self, level: int) -> list[int]:
        return [value for value in self._cut.states if self._cut.made_at[value] == level]

    def _gather(self, each: _Pass) -> None:
        """Collects the ops and inputs of a pass, and requests its inputs from earlier passes."""
        for place, node in enumerate(self._cut.live):
            if self._cut.level.get(place) == each.level and node.results[0] not in self._alias:
                self._add(each, place)
        for state in self._states(each.level):
            self._want(each, self._cut.states[state])
        for queue, level in self._output_levels.items():
            for value in self._outfeed_element(queue) if level == each.level else ():
                self._want(each, value)

    def _add(self, each: _Pass, place: int) -> None:
        for value in self._cut.live[place].operands:
            if (place, value) in self._cut.sent:
                self._take(each, self._behind(value), self._cut.sent[place, value])
            else:
                self._want(each, value)
        each.nodes[place] = None

    def _want(self, each: _Pass, value: int) -> None:
        value = self._behind(value)
        made = self._cut.made_at.get(value)
        if made is not None:
            self._take(each, value, made)
        elif value not in self._maker:
            each.constants[value] = None
        elif self._maker[value] not in each.nodes:
            self._add(each, self._maker[value])

    def _take(self, each: _Pass, value: int, made: int) -> None:
        if made > each.level:
            raise CannotCutPipelineError(
                "a micro-batch changes a variable in a later pass than the one that reads it "
                f"({self._cut.stage_of(each.level)} and {self._cut.stage_of(made)} are the stages)"
            )
        if made == each.level:
            return
        each.inputs[value] = None
        before = self._passes[made]
        before.outputs[value] = None
        if value not in self._cut.made_at:
            self._add_single(before, value)

    def _add_single(self, each: _Pass, value: int) -> None:
        """Adds a value without a level to a pass that sends it."""
        if value in self._maker and self._maker[value] not in each.nodes:
            self._add(each, self._maker[value])

    def _repeated(self, stage: int) -> _Pass:
        """Returns the recomputation of a stage's forward pass."""
        first, back = self._passes[stage], self._passes[2 * self._cut.mark.stages - 1 - stage]
        wanted = [value for value in back.inputs if value in first.outputs]
        again = repeated(self._module, self._cut, self._alias, self._checkpoints, stage, wanted)
        others = {value for each in self._passes if each is not back for value in each.inputs}
        others |= {self._behind(value) for piece in self._update.pieces for value in piece.inputs}
        for value in again.outputs:
            if value not in others:
                del first.outputs[value]
        first.outputs.update((value, None) for value in again.kept if value not in first.inputs)
        if self._cut.mark.recomputation == Recomputation.WITH_BACKPROPAGATE.name and self._within(back, again):
            return _Pass(level=stage, again=True)
        return _Pass(
            level=stage,
            again=True,
            nodes=dict.fromkeys(again.places),
            constants=dict.fromkeys(again.constants),
            inputs=dict.fromkeys(again.kept),
            outputs=dict.fromkeys(again.outputs),
        )

    def _within(self, back: _Pass, again: RecomputedOps) -> bool:
        """Adds the recomputation to the backward pass if there are checkpoints in it; returns whether it did."""
        if not self._checkpoints or not again.outputs:
            return False
        phases = part_by_part(self._cut, self._alias, self._checkpoints, again, back.nodes)
        if len(phases) == 1:
            return False
        back.nodes = dict.fromkeys(place for places in phases for place in places)
        back.phases = tuple(itertools.accumulate(map(len, phases)))[:-1]
        back.inputs = dict.fromkeys([value for value in back.inputs if value not in again.outputs] + list(again.kept))
        back.constants |= dict.fromkeys(again.constants)
        return True

    def _accumulators(self) -> dict[int, tuple[int, str]]:
        """Returns the accumulated gradients that the update reads."""
        wanted = {self._behind(value) for piece in self._update.pieces for value in piece.inputs}
        found = {}
        for place, node in enumerate(self._cut.live):
            if custom_call_target(node.operation) == ACCUMULATE and wanted & set(node.results):
                found[node.results[0]] = (self._cut.level[place], configuration(node.operation)["key"])
        return found

    def _segment(self, each: _Pass) -> StageSegment:
        reads_inputs = each.level == 0 and not each.again
        queues = [name for name, level in self._output_levels.items() if level == each.level and not each.again]
        states = [] if each.again else self._states(each.level)
        return self._tracer.segment(
            PassOps(
                kind=self._kind(each),
                stage=self._cut.stage_of(each.level),
                nodes=tuple(self._cut.live[place] for place in each.nodes),
                states={state: self._behind(self._cut.states[state]) for state in states},
                constants=tuple(each.constants),
                inputs=tuple(each.inputs),
                outputs=tuple(each.outputs),
                draws=tuple(self._cut.draws[place] for place in each.nodes if place in self._cut.draws),
                elements=self._shape.elements if reads_inputs else {},
                results={name: self._outfeed_element(name) for name in queues},
                phases=each.phases,
            )
        )

    def _kind(self, each: _Pass) -> TaskKind:
        if each.again:
            return TaskKind.RECOMPUTE
        return TaskKind.FORWARD if each.level < self._cut.mark.stages else TaskKind.BACKWARD

    def _update_step(self, index: int, piece: UpdateSegment) -> UpdateStep:
        later = {self._behind(value) for each in self._update.pieces[index + 1 :] for value in each.inputs}
        inputs = tuple(dict.fromkeys(map(self._behind, piece.inputs)))
        outputs = tuple(dict.fromkeys(map(self._behind, piece.outputs)))
        replaced = {
            weight
            for weight, value in self._cut.weights.items()
            if self._update.homes[weight] == piece.stage and self._behind(value) in outputs
        }
        taken = frozenset(replaced & set(inputs)) - later
        return self._tracer.update_step(UpdateOps(piece.stage, piece.nodes, inputs, outputs, taken))
