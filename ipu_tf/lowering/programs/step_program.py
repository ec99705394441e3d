"""Builds a looped `Program` from a lowered step function: dequeue, step, enqueue.

for each step:   variables, outputs = step(variables, element)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.program.program import Arrays, Elements, Hidden, LoopPart, Program
from ipu_tf.lowering.importer.half_precision import checked_origins, with_numerics
from ipu_tf.lowering.importer.numerics import Numerics
from ipu_tf.lowering.programs.build import program_function
from ipu_tf.lowering.stablehlo.checks import checks_of
from ipu_tf.lowering.stablehlo.hidden_state import accumulation_counts, hidden_types
from ipu_tf.lowering.stablehlo.module import walk
from ipu_tf.lowering.stages.stage_loops import step_stages
from ipu_tf.lowering.tensorflow.host_calls import calls_host
from ipu_tf.lowering.tensorflow.trace import Lowered

STEPS = jax.ShapeDtypeStruct((), np.dtype(np.int32))


def step_program(
    lowered: Lowered,
    infeed: str,
    outfeed: str,
    replicas: int = 1,
    numerics: Numerics = Numerics(),  # noqa: B008
    most_steps: int | None = None,
    lengths_vary: bool = False,
) -> Program:
    """Builds the looped program of a step function.

    Its first parameter is the number of steps, an int32 scalar; the captures of the step function follow. Its results
    are the new values of the variables that the step changes, in the order of `lowered.module.aliases`.

    Args:
        lowered: the step function; its inputs are the tensors of one element, its outputs those of one step.
        infeed: name of the queue that elements come from; may be the same queue for several programs.
        outfeed: name of the queue that outputs go to.
        replicas: how many replicas run it, each on elements of its own.
        numerics: its floating-point settings.
        most_steps: most steps that run before their outputs reach the queue; None for as many as fit.
        lengths_vary: whether runs of one step and of several share one compiled function.
    """
    inputs = len(lowered.inputs)
    module = with_numerics(lowered.module, numerics, replicas, fed=inputs)
    function = program_function(module, replicas)
    # A parameter's slot is its place among the captures, after the number of steps.
    written = [parameter - inputs + 1 for parameter in module.aliases.values()]
    unwritten = [slot for slot in range(1, len(lowered.captures) + 1) if slot not in written]
    new_values = list(module.aliases)

    def step(carry: Arrays, constants: Arrays, hidden: Hidden, elements: Elements) -> tuple[Arrays, Hidden, Elements]:
        captured = dict(zip([*written, *unwritten], [*carry[1:], *constants], strict=True))
        parameters = [*elements.get(infeed, ()), *(captured[slot] for slot in sorted(captured))]
        results, hidden = function(parameters, hidden)
        rows = tuple(results[: lowered.outputs])
        return (carry[0], *(results[index] for index in new_values)), hidden, {outfeed: rows}

    first_free = 1 + len(lowered.captures)
    loop = LoopPart(
        step=step,
        goes_on=lambda carry, constants: jnp.bool_(True),
        trip_count=_steps,
        carry_in=(0, *written),
        constants=tuple(unwritten),
        carry_out=(None, *range(first_free, first_free + len(written))),
        infeeds={infeed: module.parameters[:inputs]} if inputs else {},
        outfeeds={outfeed: module.results[: lowered.outputs]},
        accumulation_counts=accumulation_counts(walk(module.main, module.functions)),
        most_steps=most_steps,
        lengths_vary=lengths_vary,
        stages=step_stages(module, infeed, outfeed, inputs, lowered.outputs, replicas),
    )
    return Program(
        name=module.name,
        parameters=(STEPS, *module.parameters[inputs:]),
        parts=(loop,),
        results=tuple(range(first_free, first_free + len(written))),
        aliases=dict(enumerate(written)),
        hidden=hidden_types(module),
        replicas=replicas,
        controls=1,
        uses_callbacks=calls_host(walk(module.main, module.functions)),
        checked=checked_origins(module),
        checks=checks_of(module),
        parameter_names=("number of steps", *map(_name, lowered.captures)),
    )


def _name(capture: Any) -> str:
    """Returns the name of a captured variable, `dense/kernel`, or of a tensor where it has one."""
    return str(getattr(capture, "name", "constant")).partition(":")[0]


def _steps(carry: Sequence[Any]) -> int:
    return int(carry[0])
