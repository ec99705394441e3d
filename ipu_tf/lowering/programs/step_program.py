"""Builds a looped `Program` from a lowered step function: dequeue, step, enqueue.

for each step:   variables, outputs = step(variables, element)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.program.program import Arrays, Elements, Hidden, LoopPart, Program
from ipu_tf.lowering.importer.half_precision import checked_origins, with_numerics
from ipu_tf.lowering.importer.numerics import Numerics
from ipu_tf.lowering.programs.build import program_function
from ipu_tf.lowering.programs.capture_notes import capture_notes
from ipu_tf.lowering.stablehlo.accumulation_checks import accumulation_location
from ipu_tf.lowering.stablehlo.check_markers import checks_of
from ipu_tf.lowering.stablehlo.module import Module, feed_name, walk
from ipu_tf.lowering.stablehlo.needed_hidden_state import accumulation_counts, hidden_types
from ipu_tf.lowering.stages.stage_loops import step_stages
from ipu_tf.lowering.tensorflow.host_calls import calls_host
from ipu_tf.lowering.tensorflow.trace import Lowered

STEPS = jax.ShapeDtypeStruct((), np.dtype(np.int32))


@dataclasses.dataclass(frozen=True)
class _StepSlots:
    """Slots of a step's program: the number of steps, the captures, then new values of the variables that it changes.

    Attributes:
        written: of the captures that the step changes, in the order of its new values.
        unwritten: of the others.
        new_values: of the new values.
    """

    written: tuple[int, ...]
    unwritten: tuple[int, ...]
    new_values: tuple[int, ...]

    @classmethod
    def of(cls, lowered: Lowered) -> _StepSlots:
        written = tuple(parameter - len(lowered.inputs) + 1 for parameter in lowered.module.aliases.values())
        first_free = 1 + len(lowered.captures)
        return cls(
            written=written,
            unwritten=tuple(slot for slot in range(1, first_free) if slot not in written),
            new_values=tuple(range(first_free, first_free + len(written))),
        )


def step_program(
    lowered: Lowered,
    infeed: str,
    outfeed: str,
    replicas: int = 1,
    numerics: Numerics = Numerics(),  # noqa: B008
    most_steps: int | None = None,
    lengths_vary: bool = False,
    optimizer_state: Sequence[Any] = (),
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
        optimizer_state: variables of an optimizer, for reports.
    """
    inputs = len(lowered.inputs)
    module = with_numerics(lowered.module, numerics, replicas, fed=inputs)
    slots = _StepSlots.of(lowered)
    loop = _loop_part(lowered, module, slots, infeed, outfeed, replicas)
    operations = list(walk(module.main, module.functions))
    feeds = {name for name in map(feed_name, operations) if name}
    return Program(
        name=module.name,
        parameters=(STEPS, *module.parameters[inputs:]),
        parts=(dataclasses.replace(loop, most_steps=most_steps, lengths_vary=lengths_vary),),
        results=slots.new_values,
        aliases=dict(enumerate(slots.written)),
        hidden=hidden_types(module),
        replicas=replicas,
        controls=1,
        uses_callbacks=bool(feeds) or calls_host(operations),
        called_back=tuple(sorted(feeds)),
        checked=checked_origins(module),
        checks=checks_of(module),
        parameter_notes=capture_notes(lowered.captures, optimizer_state, before=("number of steps",)),
        source=module.source,
    )


def _loop_part(
    lowered: Lowered, module: Module, slots: _StepSlots, infeed: str, outfeed: str, replicas: int
) -> LoopPart:
    """Returns the loop over a step, whose number of steps is in slot 0; `module` is the step's, with its numerics."""
    inputs, function = len(lowered.inputs), program_function(module, replicas)
    return LoopPart(
        step=_loop_step(function, lowered, slots, infeed, outfeed),
        goes_on=lambda carry, constants: jnp.bool_(True),
        trip_count=_steps,
        carry_in=(0, *slots.written),
        constants=slots.unwritten,
        carry_out=(None, *slots.new_values),
        infeeds={infeed: module.parameters[:inputs]} if inputs else {},
        outfeeds={outfeed: module.results[: lowered.outputs]},
        accumulation_counts=accumulation_counts(walk(module.main, module.functions)),
        accumulated_at=accumulation_location(module, walk(module.main, module.functions)),
        stages=step_stages(module, infeed, outfeed, inputs, lowered.outputs, replicas),
    )


def _loop_step(
    function: Callable[[Sequence[Any], Hidden], tuple[list[jax.Array], Hidden]],
    lowered: Lowered,
    slots: _StepSlots,
    infeed: str,
    outfeed: str,
) -> Callable[[Arrays, Arrays, Hidden, Elements], tuple[Arrays, Hidden, Elements]]:
    """Returns `LoopPart.step` of a step function: it carries the number of steps and the variables that change."""
    new_values = list(lowered.module.aliases)

    def step(carry: Arrays, constants: Arrays, hidden: Hidden, elements: Elements) -> tuple[Arrays, Hidden, Elements]:
        captured = dict(zip([*slots.written, *slots.unwritten], [*carry[1:], *constants], strict=True))
        parameters = [*elements.get(infeed, ()), *(captured[slot] for slot in sorted(captured))]
        results, hidden = function(parameters, hidden)
        outputs = tuple(results[: lowered.outputs])
        return (carry[0], *(results[index] for index in new_values)), hidden, {outfeed: outputs}

    return step


def _steps(carry: Sequence[Any]) -> int:
    return int(carry[0])
