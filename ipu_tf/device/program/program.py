"""`Program`: a device program as frozen data. Front ends build programs; `Executable` runs them.

A program works on numbered slots. Its parameters fill the first ones; each part reads some slots and fills others;
its results are slots too. Hidden state, such as the seed of stateful random ops, travels beside the slots.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ipu_tf.device.program.parameter_notes import ParameterNotes

if TYPE_CHECKING:
    from ipu_tf.device.numerics.assertions import Check
    from ipu_tf.device.op_locations import OpLocation
    from ipu_tf.device.program.callback_state import CallbackState
    from ipu_tf.device.program.stage_program import StageProgram

Types = tuple[jax.ShapeDtypeStruct, ...]
Arrays = tuple[jax.Array, ...]
Hidden = dict[str, jax.Array]
_OF_TENSORFLOW = re.compile(r"\A(?:__inference_)?(.+)_\d+\Z")
Elements = dict[str, Arrays]
"""One element for each queue, by the queue's name."""


def bytes_of(types: Types) -> int:
    """Returns the total bytes of arrays of these types."""
    return sum(math.prod(each.shape) * np.dtype(each.dtype).itemsize for each in types)


@dataclasses.dataclass(frozen=True)
class StraightLinePart:
    """Straight-line part of a program: runs once.

    Attributes:
        run: `(live, hidden, elements) -> (live_out, hidden, enqueued)`, traceable by JAX.
        live_in: slots it reads, in the order of `run`'s arguments.
        live_out: slots it fills, in the order of `run`'s results.
        infeeds: element types of the infeeds it dequeues one element from.
        outfeeds: element types of the outfeeds it enqueues one element to.
    """

    run: Callable[[Arrays, Hidden, Elements], tuple[Arrays, Hidden, Elements]]
    live_in: tuple[int, ...]
    live_out: tuple[int, ...]
    infeeds: Mapping[str, Types] = dataclasses.field(default_factory=dict)
    outfeeds: Mapping[str, Types] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class LoopPart:
    """Streamed loop: runs in chunks, its infeeds staged by the host, which may end it between chunks.

    Attributes:
        step: `(carry, constants, hidden, elements) -> (carry, hidden, enqueued)`, traceable by JAX.
        goes_on: `(carry, constants) -> bool array`, the loop's condition, traceable by JAX.
        trip_count: from the initial carry to the number of iterations; None, also as its result, where data decide it.
        carry_in: slots of the initial carried values; a slot may occur twice.
        constants: slots of values the loop reads but does not carry.
        carry_out: slots for the final carried values; None for one that is not read.
        infeeds: element types of the infeeds it dequeues one element from in each iteration.
        outfeeds: element types of the outfeeds it enqueues one element to in each iteration.
        sometimes: outfeeds that not every iteration enqueues to; `step` returns for each a flag, then the element.
        accumulation_counts: gradient accumulation counts; each has to divide the number of iterations.
        accumulated_at: the op that accumulates them, with the user's source line; None where it is not known.
        most_steps: most iterations of a chunk, and so most elements that outfeeds get at a time; None for no limit.
        lengths_vary: whether executions of one iteration and of several share one compiled function.
        feedless: whether it has no feeds, and is a part only so that the host may end it; its iterations are no steps.
        stages: the loop cut into pipeline stages, or the reason why it cannot be; None if it is no pipeline.
    """

    step: Callable[[Arrays, Arrays, Hidden, Elements], tuple[Arrays, Hidden, Elements]]
    goes_on: Callable[[Arrays, Arrays], jax.Array]
    trip_count: Callable[[Sequence[Any]], int | None] | None
    carry_in: tuple[int, ...]
    constants: tuple[int, ...]
    carry_out: tuple[int | None, ...]
    infeeds: Mapping[str, Types] = dataclasses.field(default_factory=dict)
    outfeeds: Mapping[str, Types] = dataclasses.field(default_factory=dict)
    sometimes: frozenset[str] = frozenset()
    accumulation_counts: tuple[int, ...] = ()
    accumulated_at: OpLocation | None = None
    most_steps: int | None = None
    lengths_vary: bool = False
    feedless: bool = False
    stages: StageProgram | str | None = None

    @functools.cached_property
    def element_bytes(self) -> int:
        """Bytes that one iteration dequeues and enqueues."""
        return sum(map(bytes_of, (*self.infeeds.values(), *self.outfeeds.values())))

    @property
    def live_in(self) -> tuple[int, ...]:
        """Every slot the loop reads."""
        return tuple(dict.fromkeys(self.carry_in + self.constants))

    @property
    def live_out(self) -> tuple[int, ...]:
        """Every slot the loop fills."""
        return tuple(slot for slot in self.carry_out if slot is not None)


Part = StraightLinePart | LoopPart


@dataclasses.dataclass(frozen=True)
class Program:
    """Device program.

    Attributes:
        name: for errors and reports.
        parameters: shape and dtype of every parameter; parameter i is slot i.
        parts: what to run, in order.
        results: slots of the results.
        aliases: result -> parameter by index, where a result is the new value of state. These parameters are donated.
        hidden: the pieces of hidden state that its control flow carries; see `ipu_tf.device.memory.hidden_state`.
        replicas: how many replicas it was built for. Shapes here are those of one replica.
        controls: how many parameters, the first ones, control the execution and are no user data.
        uses_callbacks: whether the running program calls back to the host for feeds; see `keeps_state`.
        called_back: the queues that it uses by such callbacks.
        callback_state: of the callbacks, where they are in its functions already; else the executable makes one.
        checked: the operations that are checked for floating-point exceptions, by TensorFlow's names for them; see
            `ipu_tf.device.numerics.exceptions`. Such programs donate nothing, so that state survives an exception.
        checks: its assertions by their numbers; see `ipu_tf.device.numerics.assertions`. They donate nothing either.
        parameter_notes: names of the parameters and what they are, for reports.
        title: what a user calls it, such as a model and its step; "" where that is not known.
        source: gives a hash of what its functions are traced from, equal in all processes; "" where that is not known.
    """

    name: str
    parameters: Types
    parts: tuple[Part, ...]
    results: tuple[int, ...]
    aliases: Mapping[int, int]
    hidden: Mapping[str, jax.ShapeDtypeStruct] = dataclasses.field(default_factory=dict)
    replicas: int = 1
    controls: int = 0
    uses_callbacks: bool = False
    called_back: tuple[str, ...] = ()
    callback_state: CallbackState | None = None
    checked: tuple[str, ...] = ()
    checks: Mapping[int, Check] = dataclasses.field(default_factory=dict)
    parameter_notes: ParameterNotes = ParameterNotes()
    title: str = ""
    source: Callable[[], str] = str

    @property
    def readable_name(self) -> str:
        """Its title, or its name without what TensorFlow adds to that of a function."""
        return self.title or _OF_TENSORFLOW.sub(r"\1", self.name)

    @property
    def infeeds(self) -> tuple[str, ...]:
        """Names of the staged infeeds."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.infeeds))

    @property
    def outfeeds(self) -> tuple[str, ...]:
        """Names of the staged outfeeds."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.outfeeds))

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of all the queues it uses."""
        return tuple(dict.fromkeys((*self.infeeds, *self.outfeeds, *self.called_back)))

    @property
    def keeps_state(self) -> bool:
        """Returns whether an execution may fail and must then leave state unchanged: nothing is donated."""
        return bool(self.uses_callbacks or self.checked or self.checks)

    @functools.cached_property
    def new_values(self) -> Mapping[int, int]:
        """Slots of the results that are new values of parameters, with the parameter of each."""
        return {self.results[index]: parameter for index, parameter in self.aliases.items()}

    def last_read_slots(self, index: int) -> frozenset[int]:
        """Returns the slots that part `index` is the last to read, whose buffers can be donated to it."""
        return self._dying[index]

    @functools.cached_property
    def _dying(self) -> tuple[frozenset[int], ...]:
        return tuple(self._dying_slots(index) for index in range(len(self.parts)))

    def _dying_slots(self, index: int) -> frozenset[int]:
        if self.keeps_state:
            return frozenset()
        later = {slot for part in self.parts[index + 1 :] for slot in part.live_in} | set(self.results)
        kept = later | (set(range(len(self.parameters))) - set(self.aliases.values()))
        return frozenset(self.parts[index].live_in) - kept
