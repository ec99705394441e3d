"""Warns once about environment variables and flags that are not emulated."""

from __future__ import annotations

from ipu_tf._config.engine_options import record_engine_options
from ipu_tf._config.flag_table import usage
from ipu_tf._config.flags import Flags, ignored
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._config.ignored_options import EmulationWarning
from ipu_tf._config.messages import warn_user
from ipu_tf._config.treatment import Effect
from ipu_tf._pvti.session import duration as pvti_duration
from ipu_tf._state.once import first_time
from ipu_tf.device.environment import fault_options

_FAULTS = "Faults of the hardware are not emulated."


def warn_about_environment(flags: Flags) -> None:
    """Prints the text of `--help`, warns of variables that are not emulated, and records the others.

    `ipu_tf.emulation.ignored_arguments()` lists what is recorded.
    """
    if flags.values["help"] and first_time("--help"):
        print(usage(), flush=True)
    for flag, value in ignored(flags):
        name = f"TF_POPLAR_FLAGS --{flag.name}"
        if flag.treatment.effect is Effect.WARNS:
            _warn(name, str(value), flag.treatment.reason)
        else:
            record_ignored(name, value, flag.treatment.reason.rstrip(".").lower())
    record_engine_options()
    record_ignored("PVTI_OPTIONS duration", pvti_duration(), "a recording lasts until it is closed")
    if fault_options():
        _warn("GCDA_OPTIONS", fault_options(), _FAULTS)


def _warn(name: str, text: str, reason: str) -> None:
    if first_time("environment", name, text):
        warn_user(f"{name}={text} is not emulated. {reason}", EmulationWarning)
