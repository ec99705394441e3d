"""Device connection type: whether compiled programs are run, return zeros, or are refused.

                compiles    execution
ATTACHED           yes      runs
PRE_COMPILE        yes      returns zeros
COMPILE_ONLY       yes      is an error
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.feeds.execution_queues import ExecutionQueues
from ipu_tf.device.program.program import LoopPart, Program, StraightLinePart, Types
from ipu_tf.device.program.replicas import replica_axes_of


class Connection(enum.Enum):
    """Connection type: what is done with programs after compilation."""

    ATTACHED = "attached"
    PRE_COMPILE = "pre-compile"
    COMPILE_ONLY = "compile only"


class DeviceNotAttachedError(DeviceError):
    """Raised if a program is executed on a device that only compiles."""

    def __init__(self, program: str, ordinal: int) -> None:
        super().__init__(
            "Trying to run an executable on a device that was configured for compilation only. "
            f"(The program '{program}' on /device:IPU:{ordinal} was compiled. Set `device_connection.type` to "
            "ON_DEMAND or ALWAYS to run it, or to PRE_COMPILE for results that are zeros.)"
        )


_connection = register_state("connection type of the device", ProcessValue(Connection.ATTACHED))


def connect(connection: Connection) -> None:
    """Sets the connection type of the process."""
    _connection.value = connection


def current() -> Connection:
    """Returns the connection type that is set."""
    return _connection.value


def attached() -> bool:
    """Returns whether programs are run."""
    return _connection.value is Connection.ATTACHED


def placeholder_results(program: Program, ordinal: int, feeds: ExecutionQueues) -> tuple[np.ndarray, ...]:
    """Returns zeros in place of the results of a program, on a device that is not `attached`.

    The program is traced as JAX would compile it, so that what cannot be compiled fails here as well.

    Args:
        program: the program.
        ordinal: of the device.
        feeds: the execution's queues. Each outfeed gets an element of zeros.

    Returns:
        Zeros: new values of state with an axis of replicas in front where there are several, as executions return them.

    Raises:
        DeviceNotAttachedError: where programs are only compiled.
    """
    types = result_types(program)
    if _connection.value is Connection.COMPILE_ONLY:
        raise DeviceNotAttachedError(program.name, ordinal)
    _enqueue_zeros(program, feeds)
    state = program.aliases if program.replicas > 1 else {}
    return tuple(
        np.zeros((program.replicas, *wanted.shape) if index in state else wanted.shape, wanted.dtype)
        for index, wanted in enumerate(types)
    )


def _enqueue_zeros(program: Program, feeds: ExecutionQueues) -> None:
    """Leaves one element of zeros in each outfeed of a program, however many executions there were."""
    axis = (program.replicas,) if program.replicas > 1 else ()
    for part in program.parts:
        for name, types in part.outfeeds.items():
            queue = feeds.outfeed(name)
            queue.drain()
            axes = axis if queue.last_only else (1, *axis)
            queue.put([np.zeros((*axes, *wanted.shape), wanted.dtype) for wanted in types], 1)


def result_types(program: Program) -> Types:
    """Returns shapes and dtypes of a program's results for one replica, by tracing it."""
    types = dict(enumerate(program.parameters))
    hidden = dict(program.hidden)
    with jax.enable_x64(True):
        for part in program.parts:
            types |= (
                _loop_types(part, types, hidden, program)
                if isinstance(part, LoopPart)
                else _straight_types(part, types, hidden, program)
            )
    return tuple(types[slot] for slot in program.results)


def _straight_types(
    part: StraightLinePart, types: Mapping[int, Any], hidden: Mapping[str, Any], program: Program
) -> dict[int, Any]:
    live = tuple(types[slot] for slot in part.live_in)
    outputs, _, _ = _traced(program, part.run, live, dict(hidden), dict(part.infeeds))
    return dict(zip(part.live_out, outputs, strict=True))


def _loop_types(
    part: LoopPart, types: Mapping[int, Any], hidden: Mapping[str, Any], program: Program
) -> dict[int, Any]:
    carry = tuple(types[slot] for slot in part.carry_in)
    constants = tuple(types[slot] for slot in part.constants)
    outputs, _, _ = _traced(program, part.step, carry, constants, dict(hidden), dict(part.infeeds))
    return {slot: wanted for slot, wanted in zip(part.carry_out, outputs, strict=True) if slot is not None}


def _traced(program: Program, function: Callable[..., Any], *arguments: Any) -> Any:
    axes = replica_axes_of(program.replicas)
    _, types = jax.make_jaxpr(function, axis_env=axes, return_shape=True)(*arguments)
    return types
