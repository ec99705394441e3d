"""Resolves the recomputation mode of a pipeline from argument, schedule and configuration."""

from __future__ import annotations

from typing import Any

from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._config.state import current_config
from ipu_tf.device.run.pipeline_placement import may_run_on_devices
from ipu_tf.device.schedule.schedule_rules import default_recomputation, supports_recomputation
from ipu_tf.device.schedule.timetable import Recomputation, Schedule
from ipu_tf.pipeline.options import RecomputationMode

_MODES = {
    RecomputationMode.RecomputeThenBackpropagate: Recomputation.THEN_BACKPROPAGATE,
    RecomputationMode.RecomputeAndBackpropagateInterleaved: Recomputation.WITH_BACKPROPAGATE,
}


def recomputation_of(mode: Any, schedule: int, training: bool) -> Recomputation:
    """Resolves a recomputation mode.

    `Auto` recomputes where the configuration's `allow_recompute` is set, in the way that the schedule supports; a mode
    that is named recomputes in any case. What has no effect is recorded, see `ipu_tf.emulation.ignored_arguments`.

    Args:
        mode: a `RecomputationMode`, or None for `Auto`.
        schedule: the schedule's number.
        training: whether the pipeline trains; inference recomputes nothing.

    Raises:
        TypeError: for something else.
    """
    if not isinstance(mode, (RecomputationMode, type(None))):
        raise TypeError("The given recomputation_mode is not a member of the RecomputationMode enumeration.")
    named = Schedule(schedule)
    usual = default_recomputation(named)
    if mode is None or mode is RecomputationMode.Auto:
        config = current_config()
        wanted = usual if config is not None and config.allow_recompute else Recomputation.NONE
    else:
        wanted = _MODES[mode]
    if not training or wanted is Recomputation.NONE:
        _record(mode, None if training else "inference keeps no activations")
        return Recomputation.NONE
    if not supports_recomputation(named, wanted):
        _record(
            mode, f"the {named.name.lower()} schedule does not support it, and recomputes with {usual.name} instead"
        )
        wanted = usual
    if not may_run_on_devices():
        _record(mode or RecomputationMode.Auto, "the pipeline is one loop on one device, which keeps one micro-batch")
    return wanted


def _record(mode: Any, reason: str | None) -> None:
    if mode is not None and reason is not None:
        record_ignored("pipeline.recomputation_mode", mode, reason)
