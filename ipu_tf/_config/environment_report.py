"""Warns once about environment variables and flags that are not emulated."""

from __future__ import annotations

from ipu_tf._config.flag_table import usage
from ipu_tf._config.flags import Flags, ignored
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._config.ignored_options import EmulationWarning
from ipu_tf._config.messages import warn_user
from ipu_tf._config.treatment import Effect
from ipu_tf._state.once import first_time
from ipu_tf.device.environment import other_options

_REPORTS = (
    "Of Poplar's engine there is nothing to profile: no report is written. `jax.profiler` measures this machine, and "
    "`ipu_tf.emulation.device_counts()` says what the emulated device did."
)
_FAULTS = "Faults of the hardware are not emulated."
_NO_ENGINE = "there is no Poplar engine in emulation"
_NO_LOG = "there is no Poplar that logs; `logging.getLogger('ipu_tf').setLevel` sets what this package says"


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
    for name, text in other_options().items():
        _warn_about_variable(name, text)


def _warn_about_variable(name: str, text: str) -> None:
    if name == "GCDA_OPTIONS":
        _warn(name, text, _FAULTS)
    elif name == "POPLAR_ENGINE_OPTIONS" and "autoReport" in text:
        _warn(name, text, _REPORTS)
    else:
        record_ignored(name, text, _NO_LOG if name == "POPLAR_LOG_LEVEL" else _NO_ENGINE)


def _warn(name: str, text: str, reason: str) -> None:
    if first_time("environment", name, text):
        warn_user(f"{name}={text} is not emulated. {reason}", EmulationWarning)
