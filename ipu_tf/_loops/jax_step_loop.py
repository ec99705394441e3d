"""`JaxStepLoop`: runs a JAX training step as a loop on the device, for Keras models on the JAX backend.

state ──► JaxStepLoop.run(steps) ──► state, outputs        the state's buffers are donated to the run
             ▲
elements ────┘

The numbers are JAX's own; a float16 that overflows becomes infinite, as JAX has it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ipu_tf._loops.jax_feed import JaxFeed
from ipu_tf._loops.step_outputs import StepOutputs
from ipu_tf._training.replication import check_target, target
from ipu_tf.device.errors import InfeedExhausted
from ipu_tf.device.feeds import connection_type as connection
from ipu_tf.device.feeds import queues
from ipu_tf.device.feeds.outfeed import Outfeed
from ipu_tf.device.program.program import bytes_of
from ipu_tf.device.run.executable import Executable, Outcome
from ipu_tf.device.run.interrupts import Interrupts
from ipu_tf.emulation import EmulationError
from ipu_tf.lowering.importer.numerics import Numerics, Rounding
from ipu_tf.lowering.jax.jax_lines import refusals_at_lines
from ipu_tf.lowering.jax.jax_step import Step, TracedStep, traced_step
from ipu_tf.lowering.jax.jax_updates import AccumulationSettings, Updates
from ipu_tf.lowering.programs.host_errors import to_tensorflow_error

__all__ = ["JaxStepLoopResult", "JaxStepLoop", "AccumulationSettings", "Updates", "refusals_at_lines"]

_numbers = itertools.count()
_HALF = np.dtype(np.float16)


@dataclasses.dataclass(frozen=True)
class JaxStepLoopResult:
    """Result of a run of a step loop.

    Attributes:
        steps: how many steps ran; fewer than asked for if the elements ran out, or an error ended them.
        carried: the new state, in the structure it was given in. Its arrays have a leading axis of replicas where there
            are several.
        rows: what the step returned, as NumPy arrays: of the last step, or of every step with a leading dimension.
            None if no step ran.
        error: what ended the run early, or None. The state is that of the last complete step.
    """

    steps: int
    carried: Any
    rows: Any
    error: BaseException | None = None


class JaxStepLoop:
    """A step traced for one structure of state and of elements.

    Args:
        step: `(carried, constants, element, updates) -> (row, carried)`, traceable by JAX; gradients go through
            `updates.apply`.
        carried: the state that it changes: a tree of arrays or `jax.ShapeDtypeStruct`s, of one replica.
        constants: the same of what it only reads.
        element: `jax.ShapeDtypeStruct`s of an element, as `JaxFeed.spec` gives them.
        rule: how gradients make updates; it has the number of replicas too.
        ordinal: the `/device:IPU:<ordinal>` it runs on.
        all_rows: keep the rows of all steps, not only the last.
        shards: how many IPUs one replica uses.
        stepwise: give out the row of each step when it has run, not those of a chunk of steps: `run` can be watched.
        lengths_vary: runs of one step and of several come in turn: they share one compiled function.

    Attributes:
        row_bytes: bytes of what one step returns, on one replica.

    Raises:
        EmulationError: if the configuration wants floating-point settings that this way does not model.
        tf.errors.FailedPreconditionError: if no device is configured.
        tf.errors.InternalError: if the IPUs of a replica do not divide those of the device.
    """

    def __init__(
        self,
        step: Step,
        carried: Any,
        constants: Any,
        element: Any,
        rule: AccumulationSettings = AccumulationSettings(),  # noqa: B008
        ordinal: int = 0,
        all_rows: bool = False,
        shards: int = 1,
        stepwise: bool = False,
        lengths_vary: bool = False,
    ) -> None:
        self._shards = shards
        self._stepwise = stepwise
        self._target = target(ordinal, shards)
        number = next(_numbers)
        self._infeed = f"jax_infeed_{number}"
        self._outfeed = Outfeed(f"jax_outfeed_{number}", last_only=not all_rows)
        self._state_tree = jax.tree.structure(carried)
        feeds = (self._infeed, self._outfeed.name)
        self._traced = traced_step(
            step, carried, constants, element, rule, *feeds, 1 if stepwise else None, lengths_vary
        )
        self.row_bytes = bytes_of(self._traced.rows)
        _check_numerics(self._target.numerics, self._traced)
        self._executable = Executable(self._traced.program, ordinal)
        self._rows = StepOutputs(self._outfeed, self._traced.rows, self._executable.replicas, all_rows)

    def run(
        self,
        carried: Any,
        constants: Any,
        elements: JaxFeed,
        steps: int,
        watch: Callable[[Any], None] | None = None,
    ) -> JaxStepLoopResult:
        """Runs up to `steps` steps.

        Args:
            carried: the state, of which the device takes over the JAX arrays. An array may be one replica's, which all
                then start from, or have a leading axis of replicas.
            constants: what the steps only read; stays as it is.
            elements: where elements come from. With R replicas element `R * i + r` is that of step `i` on replica `r`.
            steps: how many steps to run.
            watch: called with what the step returned, as NumPy arrays, of one step after the other, in a thread of its
                own while later steps run; for a `stepwise` loop. The run ends after its last call. If it raises, the
                run ends early, and that is the `error` of what ran.

        Raises:
            tf.errors.FailedPreconditionError: if the device has other IPUs or settings than when the loop was made.
            KeyboardInterrupt: on a second Ctrl-C. The first is the `error` of what ran.
        """
        with Interrupts() as interrupts:
            elements.check = interrupts.check
            given = (carried, constants, elements, steps)
            ran = self._run(*given) if watch is None else self._run_watched(*given, watch)
            try:
                interrupts.check()
            except KeyboardInterrupt as asked:
                return _with_error(ran, asked)
        return ran

    def _run_watched(
        self, carried: Any, constants: Any, elements: JaxFeed, steps: int, watch: Callable[[Any], None]
    ) -> JaxStepLoopResult:
        assert self._stepwise, "Rows of a loop that is not stepwise come in chunks."
        ran: JaxStepLoopResult | None = None
        try:
            with self._rows.watched(elements, lambda row: watch(self._packed(row))) as ended:
                ran = self._run(carried, constants, elements, steps)
                ended(ran.steps)
        except BaseException as error:
            if ran is None:
                raise
            return _with_error(ran, error)
        return ran

    def _packed(self, arrays: Sequence[Any]) -> Any:
        return jax.tree.unflatten(self._traced.row_tree, arrays)

    def _run(self, carried: Any, constants: Any, elements: JaxFeed, steps: int) -> JaxStepLoopResult:
        check_target(self._target, self._shards)
        self._rows.forget()
        queues.add_infeed(elements.as_infeed(self._infeed))
        queues.add_outfeed(self._outfeed)
        try:
            leaves = [*jax.tree.leaves(carried), *jax.tree.leaves(constants)]
            outcome = self._executable.run([np.int32(steps), *leaves])
        except BaseException as error:
            raise to_tensorflow_error(error) from error.__cause__
        finally:
            queues.remove(self._infeed)
            queues.remove(self._outfeed.name)
        return self._ran(outcome, elements, steps)

    def _ran(self, outcome: Outcome, elements: JaxFeed, steps: int) -> JaxStepLoopResult:
        replicas = self._executable.replicas.count
        ran = outcome.steps if connection.attached() else elements.skip_elements(steps, replicas)
        error = outcome.error
        promised = None if error is None or isinstance(error, InfeedExhausted) else to_tensorflow_error(error)
        rows = self._rows.of_run(ran)
        packed = None if rows is None else self._packed(rows)
        return JaxStepLoopResult(ran, jax.tree.unflatten(self._state_tree, outcome.results), packed, promised)


def _with_error(ran: JaxStepLoopResult, error: BaseException) -> JaxStepLoopResult:
    """Returns a result that ended with an error: the first one, if there was one already."""
    return ran if ran.error is not None else dataclasses.replace(ran, error=error)


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
