"""`PipelineShape`: number of stages, device mapping, and training or inference."""

from __future__ import annotations

import dataclasses

from ipu_tf.device.schedule.timetable import Recomputation

#: The entry of a device mapping for a stage that is spread over every device.
ALL_DEVICES = -1

#: What a device mapping has for a stage: a device, `ALL_DEVICES`, or the devices of parallel stages.
StageDevices = int | tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class PipelineShape:
    """Shape of a pipeline: what a timetable depends on besides the schedule and the number of micro-batches.

    Attributes:
        stages: how many stages the pipeline has.
        device_mapping: for each stage a device from 0 on, `ALL_DEVICES`, or a tuple of the devices it is spread over;
            empty (the default) for stage s on device s.
        training: whether micro-batches go backward too, and the weights are updated at the end.
        recomputation: how backward passes get activations. By default they are kept.
        devices: how many devices there are; 0 (the default) for as many as the mapping needs.

    Raises:
        ValueError: there are no stages, not one entry of the mapping for each stage, an entry that is no device, or
            fewer devices than the mapping needs.

    Example:
        >>> PipelineShape(3, device_mapping=(0, 1, 0)).stage_devices
        ((0,), (1,), (0,))
    """

    stages: int
    device_mapping: tuple[StageDevices, ...] = ()
    training: bool = True
    recomputation: Recomputation = Recomputation.NONE
    devices: int = 0

    def __post_init__(self) -> None:
        if self.stages < 1:
            raise ValueError(f"A pipeline needs at least one stage. Received: {self.stages}.")
        if len(self.mapping) != self.stages:
            raise ValueError(
                f"Each stage must be mapped to an IPU: {len(self.mapping)} mappings != {self.stages} stages"
            )
        for stage, where in enumerate(self.mapping):
            _check_devices(stage, where)
        if self.devices and self.devices < self._needed:
            raise ValueError(
                f"The device mapping {self.mapping} needs {self._needed} devices. Received: devices={self.devices}."
            )

    @property
    def mapping(self) -> tuple[StageDevices, ...]:
        """Returns the device mapping, one entry for each stage."""
        return self.device_mapping or tuple(range(self.stages))

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return self.devices or self._needed

    @property
    def stage_devices(self) -> tuple[tuple[int, ...], ...]:
        """Devices of each stage, as tuples."""
        everywhere = tuple(range(self.device_count))
        return tuple(everywhere if where == ALL_DEVICES else _devices(where) for where in self.mapping)

    @property
    def period(self) -> int:
        """Ticks of a micro-batch's passes: one for each stage, in training two."""
        return self.stages * (2 if self.training else 1)

    @property
    def _needed(self) -> int:
        return max(1, 1 + max(max(_devices(where)) for where in self.mapping))


def _devices(where: StageDevices) -> tuple[int, ...]:
    return where if isinstance(where, tuple) else (where,)


def _check_devices(stage: int, where: StageDevices) -> None:
    devices = _devices(where)
    if where != ALL_DEVICES and (not devices or len(set(devices)) < len(devices) or min(devices) < 0):
        raise ValueError(
            f"device_mapping must have for each stage a device from 0 on, {ALL_DEVICES} for all devices, or a tuple of "
            f"different devices. Received for stage {stage}: {where!r}."
        )
