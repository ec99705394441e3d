"""Decides whether a pipeline runs on several JAX devices or as one loop on one device (`run_on_devices`).

Both give the same numbers. The setting is the process's; see `run_on_devices`.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import Any, Literal, get_args

import jax

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.errors import DeviceError
from ipu_tf.device.program.program import LoopPart, Program
from ipu_tf.device.program.replicas import Replicas
from ipu_tf.device.program.stage_program import StageProgram
from ipu_tf.device.schedule.pipeline_shape import PipelineShape
from ipu_tf.device.schedule.schedule_rules import MicroBatchCountError, ScheduleError
from ipu_tf.device.schedule.schedules import timetable
from ipu_tf.device.schedule.timetable import Schedule

Mode = Literal["auto", "loop", "devices"]
_log = logging.getLogger("ipu_tf")
_told: dict[str, None] = register_state("pipelines on one device: the reasons", {})


@dataclasses.dataclass(frozen=True)
class _PlacementSettings:
    mode: Mode = "auto"
    measure: bool = False


_setting = register_state("where pipelines run", ProcessValue(_PlacementSettings()))


class PipelineDevicesError(DeviceError, NotImplementedError):
    """Raised if a pipeline is required to run on several JAX devices and cannot."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"The pipeline cannot run on several JAX devices: {reason}. Run it as one loop, which gives the same "
            'numbers: `ipu_tf.pipeline.run_on_devices("auto")` or `("loop")`.'
        )


def run_on_devices(mode: Mode = "auto", measure: bool = False) -> None:
    """Sets whether pipelines of this process run on several JAX devices or as one loop.

    Each IPU of a pipeline's device mapping is then a JAX device of its own, IPU i the i-th of `jax.local_devices()`;
    with replicas on N IPUs each, IPU i of replica r is the device r N + i. On a machine without accelerators
    `XLA_FLAGS=--xla_force_host_platform_device_count=4`, set before JAX starts, makes four of them.

    Args:
        mode: "devices": on JAX devices, stage by stage after the schedule's timetable, or not at all; "loop": on one,
            as one loop; "auto" (where nothing is said): on devices where there are enough of them and the pipeline can
            be cut into stages, else as one loop, which the log then says, and `pipelines_on_one_device()`.
        measure: whether to measure when devices do their tasks, for `pipeline_counts().measured` and traces.

    Raises:
        ValueError: for any other mode.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"run_on_devices takes one of {list(get_args(Mode))}. Received: {mode!r}.")
    _setting.value = _PlacementSettings(mode, measure)


def measures_times() -> bool:
    """Returns whether times of tasks are measured where pipelines run on several devices."""
    return _setting.value.measure


def pipelines_on_one_device() -> tuple[str, ...]:
    """Returns the reasons why pipelines ran as one loop though there are several JAX devices, a sentence each."""
    return tuple(_told)


def stage_places(part: LoopPart, program: Program) -> tuple[Replicas, ...]:
    """Returns the JAX devices of a pipelined loop: for each IPU of a replica, one device for each replica.

    Args:
        part: the loop.
        program: its program.

    Returns:
        Empty if the loop is no pipeline, or runs as one loop.

    Raises:
        PipelineDevicesError: if it has to run on several, and cannot.
    """
    if part.stages is None or not may_run_on_devices():
        return ()
    if _setting.value.mode == "auto" and isinstance(part.stages, StageProgram) and part.stages.devices == 1:
        return ()
    there = tuple(jax.local_devices())
    reason = _reason(part, program, len(there))
    if reason is None:
        assert not isinstance(part.stages, str)
        ipus, count = part.stages.devices, program.replicas
        return tuple(Replicas(count, there[ipu : count * ipus : ipus]) for ipu in range(ipus))
    require_one_device(reason)
    return ()


def record_one_device(reason: str) -> None:
    """Logs once that a pipeline runs as one loop though there are several JAX devices, and why."""
    text = f"The pipeline runs as one loop on one JAX device: {reason}."
    if text not in _told:
        _told[text] = None
        _log.warning("%s", text)


def may_run_on_devices() -> bool:
    """Returns whether pipelines run on several JAX devices where they can."""
    return _setting.value.mode == "devices" or (_setting.value.mode == "auto" and len(jax.local_devices()) > 1)


def require_one_device(reason: str) -> None:
    """Logs, or raises in mode "devices", the reason why a pipeline cannot run on several JAX devices.

    Raises:
        PipelineDevicesError: if it has to.
    """
    if _setting.value.mode == "devices":
        raise PipelineDevicesError(reason)
    if may_run_on_devices():
        record_one_device(reason)


def parameter_devices(program: Program) -> tuple[Replicas | None, ...]:
    """Returns the devices of each parameter of a program; None for the program's default devices."""
    homes: dict[int, Replicas] = {}
    for part in program.parts:
        places = stage_places(part, program) if isinstance(part, LoopPart) else ()
        if places and isinstance(part, LoopPart) and isinstance(part.stages, StageProgram):
            stages = part.stages
            values = [*zip(part.carry_in, stages.carried, strict=True), *zip(part.constants, stages.outer, strict=True)]
            where = {**stages.only_readers(), **stages.homes}
            homes.update({slot: places[stages.mapping[where[value]]] for slot, value in values if value in where})
    return tuple(homes.get(slot) for slot in range(len(program.parameters)))


def together(tree: Any, replicas: Replicas) -> Any:
    """Moves arrays from the devices of several stages to the program's devices; other arrays are unchanged.

    Args:
        tree: of arrays, with a leading axis of replicas where there are several.
        replicas: of the program.
    """
    places = {frozenset(leaf.devices()) for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)}
    home = Replicas(replicas.count, replicas.where())
    if places <= {frozenset(home.devices)}:
        return tree
    return jax.tree.map(lambda leaf: home.place(leaf, 0), tree)


def _not_scheduled(stages: StageProgram) -> str | None:
    """Returns the reason why the schedule cannot run the pipeline."""
    shape = PipelineShape(stages.stages, stages.mapping, stages.training, stages.recomputation)
    try:
        if stages.count:
            timetable(Schedule(stages.schedule), shape, stages.count)
    except (MicroBatchCountError, ScheduleError) as error:
        return str(error).rstrip(".")
    return None


def _reason(part: LoopPart, program: Program, there: int) -> str | None:
    """Returns the reason why a pipeline cannot run on several devices."""
    if isinstance(part.stages, str):
        return part.stages
    assert part.stages is not None
    if program.replicas > 1 and program.uses_callbacks:
        return "its replicas call the host, whose order JAX keeps on one device only"
    if part.trip_count is None:
        return "how often its loop runs depends on data"
    reason = _not_scheduled(part.stages)
    if reason is not None:
        return reason
    if part.stages.devices * program.replicas > there:
        times = f"{program.replicas} times " if program.replicas > 1 else ""
        return f"it is on {times}{part.stages.devices} IPUs, and there are {there} JAX devices"
    return None
