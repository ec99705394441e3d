"""`JaxStep`: a step function written in JAX for `StepLoop`. Its state is passed in and out; its buffers are donated.

The numbers are JAX's own; a float16 that overflows becomes infinite, as JAX has it.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ipu_tf._loops.step_loop import INFEED, OUTFEED, LoopOptions
from ipu_tf.device.counters import COUNTERS
from ipu_tf.device.program.collectives import all_gather, all_reduce, replica_index, total
from ipu_tf.device.program.parameter_notes import ParameterNotes
from ipu_tf.device.program.program import Program
from ipu_tf.device.program.replicas import AXIS, INSTANCES, has_axis
from ipu_tf.device.run.executable import Executable
from ipu_tf.device.run.lease import Lease, NoLease
from ipu_tf.emulation import EmulationError
from ipu_tf.lowering.importer.numerics import Numerics, Rounding
from ipu_tf.lowering.jax.jax_lines import refusals_at_lines
from ipu_tf.lowering.jax.jax_updates import AccumulationSettings, GradientUpdates
from ipu_tf.lowering.jax.traced_step import Step, TracedStep, traced_step
from ipu_tf.lowering.programs.program_target import Target

__all__ = [
    "AccumulationSettings",
    "GradientUpdates",
    "JaxStep",
    "count_eager_execution",
    "gather_from_all",
    "own_replica",
    "refusals_at_lines",
    "sum_over_replicas",
]

_HALF = np.dtype(np.float16)


def gather_from_all(value: Any, replicas: int) -> Any:
    """Gathers the values of the replicas of all instances, `[replicas, *shape]`, in a step that is traced.

    Args:
        value: this replica's.
        replicas: how many all instances have.
    """
    return all_gather(value, replicas // total(1))


def own_replica(replicas: int) -> Any:
    """Returns the index of this replica among those of all instances, `int32[]`, in a step that is traced.

    Args:
        replicas: how many this instance has.
    """
    return replica_index(replicas)


def sum_over_replicas(value: Any) -> Any:
    """Returns the sum of the values of the replicas of all instances, in a step that is traced; a value elsewhere."""
    here = jax.lax.axis_size(AXIS) if has_axis(AXIS) else 1
    return all_reduce(value, "ADD", here) if here > 1 or has_axis(INSTANCES) else value


def count_eager_execution() -> None:
    """Counts an execution whose ops JAX ran one by one."""
    COUNTERS.count_execution()


class JaxStep:
    """A step function, traced by JAX for one structure of state and of batches. See `DeviceStep`.

    Args:
        step: `(state, batch, updates) -> (outputs, state)`, traceable by JAX; gradients go through `updates.apply`.
        state: a tree of arrays or `jax.ShapeDtypeStruct`s, of one replica.
        batch_spec: `jax.ShapeDtypeStruct`s of a batch, as `JaxFeed.spec` gives them.
        accumulation: how gradients make updates; it has the number of replicas too.
        names: names of the state's leaves by what they are: "trainable_variables", "optimizer_variables" or others, in
            the order of the leaves. For reports.
    """

    def __init__(
        self,
        step: Step,
        state: Any,
        batch_spec: Any,
        accumulation: AccumulationSettings = AccumulationSettings(),  # noqa: B008
        names: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
    ) -> None:
        self._step = step
        # Shapes and dtypes alone: the arrays are donated to the first run.
        self._state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(tuple(leaf.shape), leaf.dtype), state)
        self._batch_spec = batch_spec
        self._accumulation = accumulation
        self._notes = _notes(names)

    def trace(self, target: Target, options: LoopOptions) -> Program:
        """Traces the step; see `DeviceStep.trace`.

        Raises:
            EmulationError: for floating-point settings that would change results and are not emulated for JAX steps.
        """
        lengths = options.most_steps, options.lengths_vary
        given = (self._step, self._state, self._batch_spec, self._accumulation)
        traced = traced_step(*given, INFEED, OUTFEED, *lengths, self._notes)
        _check_numerics(target.numerics, traced)
        self._output_tree, self.output_types = traced.output_tree, traced.outputs
        return traced.program

    def acquire(self, state: Any, executable: Executable) -> Sequence[Any]:
        """Returns the arrays of the state, which the device takes over."""
        return jax.tree.leaves(state)

    def lease(self, executable: Executable) -> Lease:
        """Returns that of a state which the caller passes in and gets back."""
        return NoLease()

    def waits_since(self) -> None:
        """Returns that nothing is known of the present execution: its state is the caller's."""

    def like(self) -> JaxStep:
        """Returns the step itself: executions leave nothing in it."""
        return self

    def commit(self, results: Sequence[Any]) -> Any:
        """Returns the new state in the structure it was given in."""
        return jax.tree.unflatten(jax.tree.structure(self._state), results)

    def recover(self) -> None:
        """Does nothing: whoever passes the state in keeps it."""

    def pack(self, arrays: Sequence[Any]) -> Any:
        """Returns NumPy arrays in the structure that the step returns."""
        return jax.tree.unflatten(self._output_tree, arrays)


def _notes(names: Mapping[str, Sequence[str]]) -> ParameterNotes:
    """Returns the notes on the program's parameters: the number of steps, then the state's leaves."""
    kinds = ["", *(kind for kind, each in names.items() for _ in each)]
    weights, slots = (
        frozenset(number for number, kind in enumerate(kinds) if kind == wanted)
        for wanted in ("trainable_variables", "optimizer_variables")
    )
    return ParameterNotes(("number of steps", *itertools.chain(*names.values())) if names else (), weights, slots)


def _check_numerics(numerics: Numerics, traced: TracedStep) -> None:
    """Refuses floating-point settings that would change results and are not emulated for JAX steps."""
    half = _HALF in traced.dtypes
    wanted = [f"floating_point_behaviour.{kind}" for kind in sorted(numerics.exceptions)]
    wanted += ["floating_point_behaviour.nanoo"] if half and numerics.nan_on_overflow else []
    wanted += ["floating_point_behaviour.esr"] if half and numerics.rounding is not Rounding.NEAREST else []
    if wanted:
        raise EmulationError(
            f"A step written in JAX computes with JAX's own floating-point numbers. Received: a configuration with "
            f"{', '.join(wanted)}. Switch that off, or use Keras's TensorFlow backend."
            + (f"\n{traced.dtypes[_HALF]}" if half else "")
        )
