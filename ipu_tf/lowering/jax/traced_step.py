"""Traces a JAX training step into a `Program` that runs it in a loop: dequeue, step, enqueue.

for each step:   outputs, state = step(state, batch)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.feeds.callbacks import belonging_to
from ipu_tf.device.feeds.jax_effects import any_calls_host
from ipu_tf.device.jaxprs.jaxpr_digest import jaxpr_digest
from ipu_tf.device.memory.hidden_state import ACCUMULATOR, ITERATION, ITERATION_TYPE, numbered_key
from ipu_tf.device.op_locations import OpLocation
from ipu_tf.device.paused_collection import paused_collection
from ipu_tf.device.program.callback_state import CallbackState
from ipu_tf.device.program.parameter_notes import ParameterNotes
from ipu_tf.device.program.program import Arrays, Elements, Hidden, LoopPart, Program, Types
from ipu_tf.device.program.replicas import replica_axes_of
from ipu_tf.device.source_lines import lines_of_stack
from ipu_tf.lowering.jax.jax_lines import location_of_equation, refusals_at_lines
from ipu_tf.lowering.jax.jax_updates import AccumulationSettings, GradientUpdates, cast_to_state_dtypes
from ipu_tf.lowering.jax.jaxpr_plans import planned

STEPS = jax.ShapeDtypeStruct((), np.dtype(np.int32))


Step = Callable[[Any, Any, GradientUpdates], tuple[Any, Any]]
"""`(state, batch, updates) -> (outputs, state)`, trees of arrays, traceable by JAX."""


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """Step traced for one structure of state and batches.

    Attributes:
        program: what the device runs. Its first parameter is the number of steps, an int32 scalar; the leaves of the
            state follow. Its results are those of the new state.
        outputs: shape and dtype of each leaf of what a step returns.
        output_tree: the structure of what a step returns.
        dtypes: all dtypes there are in the step, and the first op that makes a value of each.
    """

    program: Program
    outputs: Types
    output_tree: Any
    dtypes: Mapping[Any, OpLocation]


@paused_collection()
def traced_step(
    step: Step,
    state: Any,
    batch: Any,
    rule: AccumulationSettings,
    infeed: str,
    outfeed: str,
    most_steps: int | None = None,
    lengths_vary: bool = False,
    notes: ParameterNotes = ParameterNotes(),  # noqa: B008
) -> TracedStep:
    """Traces a step into a looped program, in JAX's own precision whatever the device's.

    Args:
        step: the step.
        state: the state that it changes, as `jax.ShapeDtypeStruct`s or arrays.
        batch: a batch, likewise.
        rule: how gradients make updates.
        infeed: name of the queue that batches come from.
        outfeed: name of the queue for the step's outputs.
        most_steps: most steps that run before their outputs reach the queue; None for no limit.
        lengths_vary: whether runs of one step and of several share one compiled function.
        notes: on the program's parameters, for reports.

    Raises:
        ValueError: if the step gives another state than it takes.
        jax.errors.JAXTypeError, jax.errors.JAXIndexError: if JAX cannot trace it; the message has the user's line.
    """
    # By shape and dtype alone: an array of an earlier run may lie on several devices, and its type then says so.
    trees = jax.tree.map(_type, (state, batch))

    def whole(iteration: Any, accumulators: Any, state: Any, batch: Any) -> Any:
        updates = GradientUpdates(rule, iteration, accumulators)
        outputs, after = step(state, batch, updates)
        return cast_to_state_dtypes(after, state), updates.accumulators, outputs

    callback_state = CallbackState()
    with jax.enable_x64(False):
        trace = jax.make_jaxpr(whole, axis_env=replica_axes_of(rule.replicas), return_shape=True)
        with refusals_at_lines(), belonging_to(callback_state):
            function, (_, _, outputs) = trace(ITERATION_TYPE, list(rule.accumulators), *trees)
    carried, element, output = (tuple(map(_type, jax.tree.leaves(tree))) for tree in (*trees, outputs))
    accumulators = _accumulators(rule, notes)
    loop = _loop_part(planned(function), rule, accumulators, len(carried), {infeed: element}, {outfeed: output})
    program = Program(
        name="jax step",
        parameters=(STEPS, *carried),
        parts=(dataclasses.replace(loop, most_steps=most_steps, lengths_vary=lengths_vary),),
        results=tuple(slot for slot in loop.carry_out if slot is not None),
        aliases={place: place + 1 for place in range(len(carried))},
        hidden=({ITERATION: ITERATION_TYPE} if rule.accumulation_count > 1 else {}) | accumulators,
        replicas=rule.replicas,
        controls=1,
        uses_callbacks=any_calls_host(function.jaxpr.effects),
        callback_state=callback_state,
        parameter_notes=notes,
        source=lambda: jaxpr_digest(function),
    )
    return TracedStep(program, output, jax.tree.structure(outputs), _dtypes(function.jaxpr))


def _loop_part(
    function: Callable[..., list[Any]],
    rule: AccumulationSettings,
    keys: Collection[str],
    state: int,
    infeeds: dict[str, Types],
    outfeeds: dict[str, Types],
) -> LoopPart:
    [infeed], [outfeed] = infeeds, outfeeds

    def step(carry: Arrays, constants: Arrays, hidden: Hidden, elements: Elements) -> tuple[Arrays, Hidden, Elements]:
        iteration = hidden.get(ITERATION, jnp.int32(0))
        given = [iteration, *(hidden[key] for key in keys), *carry[1:], *elements.get(infeed, ())]
        with jax.enable_x64(False):
            results = function(*given)
        accumulated = dict(zip(keys, results[state : state + len(keys)], strict=True))
        output = tuple(results[state + len(keys) :])
        return (carry[0], *results[:state]), {**hidden, **accumulated}, {outfeed: output}

    first_free = 1 + state
    return LoopPart(
        step=step,
        goes_on=lambda carry, constants: jnp.bool_(True),
        trip_count=lambda carry: int(carry[0]),
        carry_in=tuple(range(1 + state)),
        constants=(),
        carry_out=(None, *range(first_free, first_free + state)),
        infeeds={name: types for name, types in infeeds.items() if types},
        outfeeds=outfeeds,
        accumulation_counts=(rule.accumulation_count,) if rule.accumulation_count > 1 else (),
        accumulated_at=OpLocation("gradient accumulation", lines=lines_of_stack()),
    )


def _accumulators(rule: AccumulationSettings, notes: ParameterNotes) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the accumulators by their keys, in the order of the weights."""
    weights = [notes.names[slot] for slot in sorted(notes.weights)] if notes.names else [""] * len(rule.accumulators)
    return {
        numbered_key(ACCUMULATOR, place, name): struct
        for place, (name, struct) in enumerate(zip(weights, rule.accumulators, strict=bool(rule.accumulators)))
    }


def _type(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(leaf.shape), leaf.dtype)


def _dtypes(graph: Any) -> dict[Any, OpLocation]:
    """Collects the dtypes of all values of a jaxpr and nested ones, each with the op that creates it first."""
    found: dict[Any, OpLocation] = {}
    for eqn in graph.eqns:
        for inner in jax.extend.core.jaxprs_in_params(eqn.params):
            found = _dtypes(inner) | found
        made = {variable.aval.dtype for variable in eqn.outvars if hasattr(variable.aval, "dtype")} - set(found)
        found |= dict.fromkeys(made, location_of_equation(eqn)) if made else {}
    return found
