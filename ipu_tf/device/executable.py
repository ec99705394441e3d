"""Runs programs: compiles each part once, feeds it, and counts what ran."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ipu_tf.device import callbacks, queues, seed
from ipu_tf.device.counters import COUNTERS
from ipu_tf.device.loop_run import LoopRun
from ipu_tf.device.program import Arrays, Hidden, Program, StraightPart
from ipu_tf.device.slots import Slots
from ipu_tf.device.staging import placed


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What an execution gave.

    Attributes:
        results: the program's results, on the device. After an error: those of the last complete iteration.
        steps: loop iterations that ran.
        error: what ended the execution early, or None.
    """

    results: Arrays
    steps: int
    error: BaseException | None = None


class Executable:
    """A program made ready to run; compiled parts are kept for further executions.

    Args:
        program: the program.
        ordinal: the `/device:IPU:<ordinal>` it runs on, whose seed it draws from.
    """

    def __init__(self, program: Program, ordinal: int = 0) -> None:
        self.program = program
        self.ordinal = ordinal
        self._kept: dict[Any, Any] = {}
        self._lock = threading.Lock()
        self._shapes_seen: set[tuple[int, ...]] = set()

    def run(self, parameters: Sequence[Any]) -> Outcome:
        """Executes the program.

        Args:
            parameters: one array for each parameter, of its shape and dtype. JAX arrays among those that
                `program.aliases` names are given up.

        Raises:
            UnknownQueue: a queue that the program uses was deleted.
        """
        with self._lock, queues.program_running(), jax.enable_x64(True):
            if not self.program.uses_callbacks:
                return self._run(parameters)
            with callbacks.failures_raised():
                return self._run(parameters)

    def _run(self, parameters: Sequence[Any]) -> Outcome:
        slots = Slots(self.program, parameters)
        hidden: Hidden = {"seed": jax.device_put(seed.next_seed(self.ordinal))} if self.program.uses_seed else {}
        steps, error, capacities = 0, None, []
        for index, part in enumerate(self.program.parts):
            if isinstance(part, StraightPart):
                hidden = self._run_straight(index, part, slots, hidden)
                continue
            loop = LoopRun(self, index, part, slots, hidden)
            hidden, ran, stop = loop.run(stopped=error is not None)
            error = error or stop
            steps += ran
            capacities.append(loop.capacity)
        results = slots.results()
        jax.block_until_ready(results)
        self._count(tuple(capacities), steps)
        return Outcome(results, steps, error)

    def _run_straight(self, index: int, part: StraightPart, slots: Slots, hidden: Hidden) -> Hidden:
        elements = {name: placed(tuple(queues.infeed(name).next())) for name in part.infeeds}
        taken, kept = slots.take(index)
        compiled = self.compiled(index, lambda: _straight_function(part), donate=(0,))
        outputs, hidden, rows = compiled(taken, kept, hidden, elements)
        slots.fill(part.live_out, outputs)
        for name, row in rows.items():
            queue = queues.outfeed(name)
            queue.put(row if queue.last_only else [np.asarray(array)[None] for array in row], 1)
        return hidden

    def compiled(self, key: Any, make: Callable[[], Any], donate: tuple[int, ...]) -> Any:
        """The compiled function kept under `key`, made on first use."""
        return self.kept(key, lambda: jax.jit(make(), donate_argnums=donate))

    def kept(self, key: Any, make: Callable[[], Any]) -> Any:
        """Something that further executions use again, such as staging buffers."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def _count(self, capacities: tuple[int, ...], steps: int) -> None:
        if capacities not in self._shapes_seen:
            self._shapes_seen.add(capacities)
            COUNTERS.count_program()
        COUNTERS.count_execution(steps if capacities else 1)


def _straight_function(part: StraightPart) -> Any:
    def run(taken: dict[int, Any], kept: dict[int, Any], hidden: Hidden, elements: Any) -> Any:
        values = {**taken, **kept}
        return part.run(tuple(values[slot] for slot in part.live_in), hidden, elements)

    return run
