"""`EmbeddedEngine`: serves the program of an executable file: one input element, one output element a call.

    start(inputs)   call(element) ──► output   call(element) ──► output   ...

The program runs from its start to its end, again and again; whenever it wants an element of an infeed, it waits for
the next call. Its variables live as long as the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_tf.device.cache import executable_cache
from ipu_tf.device.counters import COUNTERS
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.files.executable_reading import ExecutableFile, parameters_of
from ipu_tf.device.memory import hidden_state
from ipu_tf.device.numerics.exceptions import EXCEPTIONS, check_exceptions
from ipu_tf.device.program.program import Arrays, Elements, Hidden
from ipu_tf.device.program.replicas import Replicas

_Wanted = Generator[str, Arrays, None]
"""Gives the name of an infeed, and takes its next element."""


class NoOutput(DeviceError):
    """Raised if the program enqueues no output for an element."""


class EmbeddedEngine:
    """Runs a program element by element.

    Args:
        file: the program.
        inputs: the parameters that are not part of the file, in the order of its signature.
    """

    def __init__(self, file: ExecutableFile, inputs: Sequence[Any]) -> None:
        self._file = file
        self._lock = threading.Lock()
        with jax.enable_x64(True):
            self._parameters = {i: jnp.asarray(value) for i, value in parameters_of(file, inputs).items()}
            self._functions = {name: executable_cache.jitted(f.call) for name, f in file.functions.items()}
        self._outfeeds = [queue for part in file.parts for queue in part["outfeeds"]]
        self._outputs: dict[str, Arrays] = {}
        self._running: _Wanted | None = None
        self._wants: str | None = None
        self._asked = False
        COUNTERS.count_program()

    def call(self, elements: Sequence[Any]) -> list[np.ndarray]:
        """Runs the program on one element and returns its output.

        Args:
            elements: the tensors of the signature's `streamed_inputs`.

        Returns:
            The tensors of the signature's `streamed_outputs`.

        Raises:
            FloatingPointExceptionError: for a floating-point exception that the program stops for.
            NoOutput: if the program has no outfeed, or does not enqueue one element to each outfeed for each call.
        """
        pending: dict[str, list[Any]] = {}
        for tensor, value in zip(self._file.signature.streamed_inputs, elements, strict=True):
            pending.setdefault(str(tensor.place), []).append(value)
        with self._lock, jax.enable_x64(True):
            try:
                outputs = self._advance({queue: tuple(map(jnp.asarray, each)) for queue, each in pending.items()})
            except BaseException:
                self._running = None  # the next call starts the program anew
                raise
        COUNTERS.count_execution()
        return outputs

    def _advance(self, pending: Elements) -> list[np.ndarray]:
        self._outputs = {}
        if self._running is None:
            self._running = self._run_forever()
            self._wants = next(self._running)
        while self._wants in pending:
            self._wants = self._running.send(pending.pop(self._wants))
        if pending or any(queue not in self._outputs for queue in self._outfeeds) or not self._outfeeds:
            raise NoOutput(
                f"'{self._file.name}' took {'no element' if pending else 'an element'} and gave elements to "
                f"{sorted(self._outputs) or 'no queue'}. An embedded program gives each of its outfeeds "
                f"({sorted(self._outfeeds) or 'it has none'}) one element for each element of its infeeds: use "
                "`infeed_queue` and `enqueue` in the body of one `loops.repeat` or `pipeline`."
            )
        return [np.asarray(array) for queue in self._outfeeds for array in self._outputs[queue]]

    def _run_forever(self) -> _Wanted:
        """Runs the program again and again; its variables persist between executions."""
        file = self._file
        while True:
            slots: dict[int, Any] = dict(self._parameters)
            state = hidden_state.initial(file.hidden, 0, Replicas())
            self._asked = False
            for part in file.parts:
                runs = self._loop if part["kind"] == "loop" else self._straight
                state = yield from runs(part, slots, state)
            if not self._asked:
                raise NoOutput(
                    f"'{file.name}' ran without taking anything from an infeed: there is nothing to call it with."
                )
            self._parameters |= {parameter: slots[file.results[r]] for r, parameter in file.aliases.items()}

    def _straight(self, part: dict[str, Any], slots: dict[int, Any], state: Hidden) -> Generator[str, Arrays, Hidden]:
        elements = yield from self._elements(part)
        live = tuple(slots[slot] for slot in part["in"])
        outputs, state, enqueued = self._functions[part["run"]](live, state, elements)
        self._give(part, state, enqueued)
        slots.update(zip(part["out"], outputs, strict=True))
        return state

    def _loop(self, part: dict[str, Any], slots: dict[int, Any], state: Hidden) -> Generator[str, Arrays, Hidden]:
        carry, constants = (tuple(slots[slot] for slot in part[names]) for names in ("in", "constants"))
        step, goes_on = self._functions[part["step"]], self._functions[part["goes_on"]]
        if hidden_state.ITERATION in state:
            state = {**state, hidden_state.ITERATION: jnp.int32(0)}
        while bool(goes_on(carry, constants)):
            elements = yield from self._elements(part)
            carry, state, enqueued = step(carry, constants, state, elements)
            self._give(part, state, enqueued)
        slots.update((slot, value) for slot, value in zip(part["out"], carry, strict=True) if slot is not None)
        return state

    def _give(self, part: dict[str, Any], state: Hidden, enqueued: Elements) -> None:
        if EXCEPTIONS in state:
            check_exceptions(np.asarray(state[EXCEPTIONS]), self._file.checked)
        for queue, element in enqueued.items():
            if queue not in part["sometimes"]:
                self._outputs[queue] = element
            elif bool(element[0]):
                self._outputs[queue] = element[1:]

    def _elements(self, part: dict[str, Any]) -> Generator[str, Arrays, Elements]:
        elements: Elements = {}
        for queue in part["infeeds"]:
            self._asked = True
            elements[queue] = yield queue
        return elements
