"""Traces the passes and the weight update of pipeline stages as JAX functions: `StageTracer`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ipu_tf.device.memory.hidden_state import SEED
from ipu_tf.device.program.program import Arrays, Elements, Hidden, Types
from ipu_tf.device.program.stage_program import StageSegment, UpdateStep
from ipu_tf.device.schedule.timetable import TaskKind
from ipu_tf.lowering.importer.interpreter import Interpreter
from ipu_tf.lowering.importer.part_feeds import PartFeeds, queue_types
from ipu_tf.lowering.stablehlo.module import Module
from ipu_tf.lowering.stablehlo.needed_hidden_state import types_in
from ipu_tf.lowering.stages.flat_step import FlatLoopBody, FlatOp
from ipu_tf.lowering.stages.recompute_cut import followed


@dataclasses.dataclass(frozen=True)
class PassOps:
    """Ops of one pass of a stage, and the values that it reads and gives.

    Attributes:
        kind: forward, backward or recomputation.
        stage: the stage's number.
        nodes: what it computes, in order.
        states: values that go from one micro-batch to the next, and what the pass makes of each.
        constants: values that it reads and that no micro-batch changes.
        inputs: values of the same micro-batch from other passes.
        outputs: values that other passes, or the update, read.
        draws: which of the micro-batch's random draws it makes.
        elements: the values that are the element of an infeed, by the infeed's name.
        results: the values that are the element of an outfeed, by the outfeed's name.
        phases: places in `nodes` of those that begin when all before have ended.
    """

    kind: TaskKind
    stage: int
    nodes: tuple[FlatOp, ...]
    states: Mapping[int, int]
    constants: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    draws: tuple[int, ...]
    elements: Mapping[str, tuple[int, ...]]
    results: Mapping[str, tuple[int, ...]]
    phases: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class UpdateOps:
    """Ops of the part of a weight update that runs on one stage.

    Attributes:
        stage: the stage's number.
        nodes: what it computes, in order.
        inputs: values that it reads.
        outputs: values that other parts read, or new values of variables.
        taken: those of the inputs that are not read afterwards.
    """

    stage: int
    nodes: tuple[FlatOp, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    taken: frozenset[int]


class StageTracer:
    """Makes JAX functions of a pipelined step's ops.

    Args:
        module: where the step is.
        step: the step.
        alias: from a value that a marker passes on to the value that it stands for.
        replicas: how many replicas the program runs as.
    """

    def __init__(self, module: Module, step: FlatLoopBody, alias: Mapping[int, int], replicas: int) -> None:
        self._module, self._step, self._alias, self._replicas = module, step, alias, replicas

    def segment(self, ops: PassOps) -> StageSegment:
        """Returns the segment of a pass."""
        infeeds, outfeeds = queue_types(node.operation for node in ops.nodes)
        infeeds |= {name: self._types(values) for name, values in ops.elements.items()}
        outfeeds |= {name: self._types(values) for name, values in ops.results.items()}
        hidden = types_in((node.operation for node in ops.nodes), self._module)
        hidden.pop(SEED, None)
        return StageSegment(
            kind=ops.kind,
            stage=ops.stage,
            run=functools.partial(self._run_pass, ops, tuple(outfeeds)),
            constants=ops.constants,
            inputs=ops.inputs,
            outputs=ops.outputs,
            states=tuple(ops.states),
            hidden=hidden,
            draws=ops.draws,
            infeeds=infeeds,
            outfeeds=outfeeds,
        )

    def update_step(self, ops: UpdateOps) -> UpdateStep:
        """Returns the step of a part of the update."""
        _, outfeeds = queue_types(node.operation for node in ops.nodes)
        run = functools.partial(self._run_update, ops, tuple(outfeeds))
        return UpdateStep(ops.stage, run, ops.inputs, ops.taken, ops.outputs, outfeeds)

    def _run_pass(
        self,
        ops: PassOps,
        outfeeds: tuple[str, ...],
        states: Arrays,
        hidden: Hidden,
        constants: Arrays,
        inputs: Arrays,
        seeds: Arrays,
        elements: Elements,
    ) -> tuple[Arrays, Arrays, Hidden, Elements]:
        """`StageSegment.run` of a pass."""
        values = dict(zip([*ops.states, *ops.constants, *ops.inputs], [*states, *constants, *inputs], strict=True))
        for name, numbers in ops.elements.items():
            values.update(zip(numbers, elements[name], strict=True))
        dequeued = {name: element for name, element in elements.items() if name not in ops.elements}
        feeds = PartFeeds(dequeued, outfeeds, self._replicas)
        hidden = self._run(ops.nodes, values, feeds, hidden, seeds, ops.phases)
        return (
            _arrays(values[value] for value in ops.outputs),
            _arrays(values[value] for value in ops.states.values()),
            hidden,
            {**feeds.enqueued, **{name: _arrays(values[v] for v in of) for name, of in ops.results.items()}},
        )

    def _run_update(
        self, ops: UpdateOps, outfeeds: tuple[str, ...], taken: Mapping[int, Any], kept: Mapping[int, Any]
    ) -> tuple[Arrays, Elements]:
        """`UpdateStep.run` of a part of the update."""
        feeds = PartFeeds({}, outfeeds, self._replicas)
        values = {**taken, **kept}
        self._run(ops.nodes, values, feeds, {}, ())
        # A copy: what an update passes on as it is may be an accumulator, whose memory is used again.
        outputs = tuple(jnp.copy(values[v]) if v in ops.inputs else jnp.asarray(values[v]) for v in ops.outputs)
        return outputs, feeds.enqueued

    def _run(
        self,
        nodes: Sequence[FlatOp],
        values: dict[int, Any],
        feeds: PartFeeds,
        hidden: Hidden,
        seeds: Arrays,
        phases: Sequence[int] = (),
    ) -> Hidden:
        """Traces some nodes; stores their results in `values`."""
        interpreter = Interpreter(self._module, feeds, hidden, self._replicas)
        left = iter(seeds)
        for place, node in enumerate(nodes):
            if place in phases:
                self._end_phase(nodes[place:], values)
            interpreter.bind(node.names, [values[followed(self._alias, value)] for value in node.operands])
            if node.operation.name == "stablehlo.rng":
                interpreter.hidden[SEED] = next(left)
            interpreter.run_operation(node.operation)
            values.update(zip(node.results, interpreter.read(node.operation.results), strict=True))
        interpreter.hidden.pop(SEED, None)
        return interpreter.hidden

    def _end_phase(self, nodes: Sequence[FlatOp], values: dict[int, Any]) -> None:
        """Has what the nodes that follow read depend on all of it, so that XLA computes none of it earlier."""
        read = {followed(self._alias, value) for node in nodes for value in node.operands}
        crossing = {value: values[value] for value in read & values.keys() if isinstance(values[value], jax.Array)}
        values.update(jax.lax.optimization_barrier(crossing))

    def _types(self, values: Iterable[int]) -> Types:
        return tuple(kind for kind in (self._step.types[value] for value in values) if kind is not None)


def _arrays(values: Iterable[Any]) -> Arrays:
    return tuple(jnp.asarray(value) for value in values)
