"""Builds the stage programs of pipelined loops: of a `stablehlo.while`, or of a module that is a loop's step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipu_tf.device.program.stage_program import StageProgram
from ipu_tf.lowering.stablehlo.module import Module
from ipu_tf.lowering.stages.flat_step import CannotCutPipelineError, flat_step
from ipu_tf.lowering.stages.stage_assigner import pipeline_of
from ipu_tf.lowering.stages.stage_cut import StepSignature
from ipu_tf.lowering.stages.stage_program_builder import stage_program

Stages = StageProgram | str | None


def loop_stages(module: Module, loop: Any, constants: Sequence[Any], replicas: int = 1) -> Stages:
    """Cuts a `while` with stage markers: a stage program, or the reason why not; None if it is no pipeline.

    Args:
        module: where the loop is.
        loop: the operation.
        constants: the MLIR names that it reads and does not carry.
        replicas: how many replicas the program runs as.
    """
    body = loop.regions[1].blocks[0]
    try:
        mark = pipeline_of(module, body)
        if mark is None:
            return None
        step = flat_step(module, body)
        shape = StepSignature({value: position for position, value in enumerate(step.arguments)})
        numbers = dict(step.outer)
        outer = [numbers.get(name) for name in constants]
        return stage_program(module, step, shape, mark, step.arguments, outer, replicas)
    except CannotCutPipelineError as error:
        return str(error)


def step_stages(module: Module, infeed: str, outfeed: str, inputs: int, outputs: int, replicas: int = 1) -> Stages:
    """Cuts a step function with stage markers, to run in a loop; results as of `loop_stages`.

    The loop carries the number of steps, then the variables that the step changes; its constants are the others.

    Args:
        module: the step.
        infeed: the queue that its inputs come from.
        outfeed: the queue that its outputs go to.
        inputs: how many inputs it has; the other parameters are variables and constants.
        outputs: how many outputs it has; the other results are new values of variables.
        replicas: how many replicas the program runs as.
    """
    try:
        mark = pipeline_of(module, module.main)
        if mark is None:
            return None
        step = flat_step(module, module.main)
        written = {parameter: result for result, parameter in module.aliases.items()}
        shape = StepSignature(
            carried={step.arguments[parameter]: result for parameter, result in written.items()},
            elements={infeed: step.arguments[:inputs]} if inputs else {},
            outputs={outfeed: tuple(range(outputs))},
        )
        unwritten = [step.arguments[p] for p in range(inputs, len(step.arguments)) if p not in written]
        carried = [None, *(step.arguments[parameter] for parameter in module.aliases.values())]
        return stage_program(module, step, shape, mark, carried, unwritten, replicas)
    except CannotCutPipelineError as error:
        return str(error)
