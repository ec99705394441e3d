"""`LoopRun`: executes a streamed loop chunk by chunk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.feeds.chunk_reading import StagedChunk
from ipu_tf.device.feeds.stager import Stager
from ipu_tf.device.feeds.staging import chunk_capacity
from ipu_tf.device.memory.hidden_state import ITERATION
from ipu_tf.device.numerics.assertions import ASSERTIONS, check_assertions
from ipu_tf.device.numerics.exceptions import EXCEPTIONS, check_exceptions
from ipu_tf.device.program.program import Arrays, Hidden, LoopPart
from ipu_tf.device.program.slots import trip_count
from ipu_tf.device.run.chunk_function import agrees, replicated_chunk_function
from ipu_tf.device.run.compilation_log import log_chunk
from ipu_tf.device.run.execution_context import ExecutionContext
from ipu_tf.device.run.feed_agreement import FeedAgreement
from ipu_tf.device.run.lease import carried_state
from ipu_tf.device.run.pace import MOST_WITHOUT_FEEDS, Pace
from ipu_tf.device.run.pipeline_placement import together
from ipu_tf.device.timeline import span


class LoopRun:
    """Execution of part `index`, a streamed loop, of an executable's program.

    Args:
        context: the execution's queues and arrays, and what keeps the compiled chunk function and the staging buffers.
        index: which part.
        part: that part.
        hidden: its hidden state.

    Attributes:
        capacity: iterations that one chunk has room for.
    """

    def __init__(self, context: ExecutionContext, index: int, part: LoopPart, hidden: Hidden) -> None:
        self._executable, self._queues, self._slots = context.executable, context.queues, context.slots
        self._part, self._replicas = part, self._executable.replicas
        self._lease, self._state = context.lease, carried_state(self._executable.program, part, self._replicas)
        self._hidden = {**hidden, ITERATION: jnp.int32(0)} if ITERATION in hidden else hidden
        self._wanted = trip_count(part, self._slots.read(part.carry_in), self._replicas)
        # A loop of single steps computes by the same function as one of varying lengths: to the same bits.
        shared = part.lengths_vary or part.most_steps is not None
        self.capacity = chunk_capacity(part.element_bytes, self._wanted, self._replicas.count, shared)
        self._most = MOST_WITHOUT_FEEDS if part.feedless else min(self.capacity, part.most_steps or self.capacity)
        self._index = index
        # Instances run chunks of the same lengths: what the device asks after each is asked in all of them.
        self._pace: Pace = self._executable.kept(("pace", index), lambda: Pace(self._replicas.instances == 1))
        self._outfeeds = self._queues.outfeeds(part.outfeeds)
        name, asked = self._executable.program.readable_name, agrees(part, self._replicas)
        self._agreement = FeedAgreement(asked, name, self._replicas.count)
        self._chunk = self._chunk_function(index)
        self._buffers = self._executable.kept(
            ("staging", index, self.capacity), lambda: Stager.make_buffers(part, self.capacity, self._replicas)
        )
        self._carry, self._constants = self._initial_values(index)

    def _chunk_function(self, index: int) -> Any:
        """Returns the compiled function of a chunk."""
        last_only = frozenset(name for name, queue in self._outfeeds.items() if queue.last_only)
        counted = self._wanted is not None
        return self._executable.compiled(
            (index, self.capacity, last_only, counted),
            lambda: replicated_chunk_function(
                self._executable.program, self._part, last_only, self.capacity, counted, self._replicas
            ),
            donate=(0, 2),
        )

    def _initial_values(self, index: int) -> tuple[Arrays, Arrays]:
        """Returns the loop's initial carry, which is donated, and its constants."""
        carry, constants = self._slots.donate_carry(index, self._part), self._slots.read(self._part.constants)
        parts = self._executable.program.parts
        if any(isinstance(each, LoopPart) and each.stages is not None for each in parts):
            carry, constants = together((carry, constants), self._replicas)  # a pipeline may have left them elsewhere
        return carry, constants

    def run(self, stopped: bool = False) -> tuple[Hidden, int, BaseException | None]:
        """Runs the loop to its end, or none of it where an earlier loop was `stopped` by an error.

        Returns:
            The hidden state, the number of iterations run, and the error that ended the loop early, or None.
        """
        done, error = 0, None
        with Stager(self._queues.infeeds(self._part.infeeds), self._most, self._buffers, self._interrupted) as stager:
            while True:
                left = 0 if stopped else self._left(done)
                chunk = self._next_chunk(stager, min(left, self._pace.most))
                if self._wanted is not None and chunk.error is None:
                    stager.stage_ahead(min(left - chunk.count, self._pace.most))
                ran, goes_on = self._used_chunk(chunk, stager)
                done += ran
                complete = stopped or not (goes_on if self._wanted is None else done < self._wanted)
                error = self._agreement.ended_by(chunk, ran, complete)
                if error is not None:
                    stager.take_error(error)
                if complete or error is not None:
                    break
                if self._executable.compilation.interrupted():
                    error = KeyboardInterrupt()
                    break
        self._slots.fill(self._part.carry_out, self._carry)
        return self._hidden, done, error

    def _next_chunk(self, stager: Stager, count: int) -> StagedChunk:
        """Waits for the elements of the next chunk. Other programs may use the loop's variables meanwhile."""
        self._lease.park(None if self._state is None else self._new_values)
        try:
            with span("Feeds", "wait for feed"):
                return stager.take(count)
        finally:
            self._go_on_from(self._lease.resume())

    def _new_values(self) -> dict[int, jax.Array]:
        assert self._state is not None
        return {result: self._carry[position] for result, position in self._state.items()}

    def _go_on_from(self, parameters: Mapping[int, Any]) -> None:
        """Takes over values that other programs may have changed while this one waited."""
        if parameters:
            self._slots.fill(list(parameters), list(parameters.values()))
            carried = zip(self._part.carry_in, self._carry, strict=True)
            constants = zip(self._part.constants, self._constants, strict=True)
            self._carry = tuple(parameters.get(slot, array) for slot, array in carried)
            self._constants = tuple(parameters.get(slot, array) for slot, array in constants)

    def prepare(self) -> Arrays:
        """Compiles the chunk function without running it; returns shapes and dtypes of the final carry."""
        arrays = {name: tuple(self._replicas.place(a, 1) for a in arrays) for name, arrays in self._buffers[0].items()}
        given = (self._carry, self._constants, self._hidden, arrays, self._agreement.said(None))
        carry: Arrays = self._chunk.prepare(*given)[0]
        return carry

    def _interrupted(self) -> bool:
        """Returns whether chunks are to have the elements that there are; instances run chunks of the same lengths."""
        return self._replicas.instances == 1 and self._executable.compilation.interrupted()

    def _left(self, done: int) -> int:
        return self._most if self._wanted is None else self._wanted - done

    def _used_chunk(self, chunk: StagedChunk, stager: Stager) -> tuple[int, bool]:
        """Runs one chunk, gives back the elements that it did not use, and raises failed checks."""
        try:
            ran, goes_on = self._timed_chunk(chunk)
        except BaseException:
            if self._executable.compilation.nothing_donated:  # nothing has run: it was not compiled
                stager.return_unused(chunk, 0)
            raise
        stager.return_unused(chunk, ran)
        if ASSERTIONS in self._hidden:
            check_assertions(np.asarray(self._hidden[ASSERTIONS]), self._executable.program.checks)
        if EXCEPTIONS in self._hidden:
            check_exceptions(np.asarray(self._hidden[EXCEPTIONS]), self._executable.program.checked)
        return ran, goes_on

    def _timed_chunk(self, chunk: StagedChunk) -> tuple[int, bool]:
        """Runs one chunk by `_run_chunk`, and records its time."""
        start = time.perf_counter()
        with span("Device", "chunk"):
            ran, goes_on = self._run_chunk(chunk)
        seconds = time.perf_counter() - start
        self._pace.ran(ran, seconds)
        log_chunk(self._executable.program, self._index, self._part, ran, seconds)
        return ran, goes_on

    def _run_chunk(self, chunk: StagedChunk) -> tuple[int, bool]:
        """Runs one chunk and enqueues its elements; returns its iterations and whether the loop continues."""
        # Without replicas JAX takes the host's memory as it is, in the call.
        arrays: dict[str, tuple[Any, ...]] = {name: staged.arrays for name, staged in chunk.staged.items()}
        if self._replicas.count > 1:
            place = self._replicas.place
            with span("Device", "upload batches"):
                arrays = {name: tuple(place(a, 1) for a in each) for name, each in arrays.items()}
        results = self._chunk(self._carry, self._constants, self._hidden, arrays, self._agreement.said(chunk))
        self._carry, self._hidden, elements, lengths, index, goes_on = self._agreement.heard(results)
        self._executable.compilation.nothing_donated = False
        # The staging buffers may be filled again only once the device has read them: the first of these waits for it.
        # `np.asarray` takes a fifth of the time that `int` or `jax.device_get` take.
        ran, more = int(np.asarray(index)), bool(np.asarray(goes_on))
        for name, queue in self._outfeeds.items():
            queue.put(elements[name], int(np.asarray(lengths[name])))
        return ran, more
