"""Checked settings of `ALSOptimizer`."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import keras


@dataclasses.dataclass(frozen=True)
class ALSDefaults:
    """Default arguments of `ALSOptimizer`."""

    initial_loss_scaling_factor: float = 1
    update_frequency: int = 8
    increase_factor: float = 2
    max_loss_scaling_factor: float = 32768
    accumulate_statistics_over_update_period: bool = True
    ratio_threshold: float = 10e-6
    captured_grads_only: bool = False
    lpf_alpha: float = 0.0
    histogram_bin_edge: float = 2**13


#: In the order of the constructor's arguments.
SETTINGS = tuple(field.name for field in dataclasses.fields(ALSDefaults))
#: A change of one of these makes the statistics so far worthless.
RESETTING = frozenset({"captured_grads_only", "lpf_alpha", "histogram_bin_edge"})


def checked_settings(settings: ALSDefaults) -> ALSDefaults:
    """Checks settings against each other and returns them.

    Raises:
        ValueError: if they may not.
    """
    if settings.update_frequency <= 0:
        raise ValueError("update_frequency must be nonzero and positive")
    for name in ("increase_factor", "max_loss_scaling_factor", "initial_loss_scaling_factor"):
        if not _is_power_of_two(getattr(settings, name)):
            raise ValueError(f"{name} must be a power of two")
    if not 0.0 < settings.ratio_threshold < 1.0:
        raise ValueError("ratio_threshold must be greater than zero and less than one")
    initial, largest = settings.initial_loss_scaling_factor, settings.max_loss_scaling_factor
    if initial >= largest:
        raise ValueError("initial_loss_scaling_factor must be less than max_loss_scaling_factor")
    if initial * settings.increase_factor >= largest:
        raise ValueError("initial_loss_scaling_factor x increase_factor must be less than max_loss_scaling_factor")
    return settings


def _is_power_of_two(value: float) -> bool:
    """Returns whether a number is 1, 2, 4, ..."""
    return value >= 1 and math.frexp(value)[0] == 0.5


def read_only(name: str) -> ValueError:
    """Returns the error for an assignment to a property without a setter."""
    return ValueError(f"{name} is a read only property.")


def _setting(name: str) -> Any:
    def read(self: Any) -> Any:
        return getattr(self.settings, name)

    def write(self: Any, value: Any) -> None:
        changed = value != getattr(self.settings, name)
        self.settings = checked_settings(dataclasses.replace(self.settings, **{name: value}))
        if changed and name in RESETTING:
            self.reset()

    return property(read, write, doc=f"The setting `{name}`. A change holds once a step is next traced.")


class ALSSettings:
    """Mixin of settings as checked attributes, for an optimizer with a `reset`."""

    settings: ALSDefaults
    initial_loss_scaling_factor = _setting("initial_loss_scaling_factor")
    update_frequency = _setting("update_frequency")
    increase_factor = _setting("increase_factor")
    max_loss_scaling_factor = _setting("max_loss_scaling_factor")
    accumulate_statistics_over_update_period = _setting("accumulate_statistics_over_update_period")
    ratio_threshold = _setting("ratio_threshold")
    captured_grads_only = _setting("captured_grads_only")
    lpf_alpha = _setting("lpf_alpha")
    histogram_bin_edge = _setting("histogram_bin_edge")

    @property
    def decrease_factor(self) -> float:
        """Factor of a decrease of the loss scaling factor: 1 / `increase_factor`."""
        return 1.0 / float(self.settings.increase_factor)

    @decrease_factor.setter
    def decrease_factor(self, value: Any) -> None:
        raise read_only("decrease_factor")


def standardised_dtype(tensor: Any) -> str:
    """The name of a tensor's dtype, e.g. `float16`."""
    return str(keras.backend.standardize_dtype(tensor.dtype))
