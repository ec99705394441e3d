"""Options of Poplar's engine that are emulated: `autoReport`, from `POPLAR_ENGINE_OPTIONS` and the configuration."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ipu_tf._config.capacity_check import CapacityCheck
from ipu_tf._config.ignored_arguments import record_ignored
from ipu_tf._config.library_options import (
    ALLOW_OUT_OF_MEMORY,
    AUTO_REPORT,
    AUTO_REPORT_DIRECTORY,
    AUTO_REPORT_OPTIONS,
    AUTO_REPORT_SWITCHES,
    AUTO_REPORT_WITHOUT_EFFECT,
    RETAIN_DEBUG_INFORMATION,
    is_emulated,
    warn_of_unknown,
)
from ipu_tf._config.schema import ConfigRoot
from ipu_tf.device.environment import engine_options, log_level
from ipu_tf.reports.auto import AutoReport, setting, use

_VARIABLE, _ATTRIBUTE = "POPLAR_ENGINE_OPTIONS", "compilation_poplar_options"
_WANTED = f"""{_VARIABLE} must be a JSON object of option names and strings, as '{{"autoReport.all": "true"}}'."""
_NO_ENGINE = "there is no Poplar engine in emulation"
_NOT_ASKED_FOR = "no option of autoReport that is true asks for reports"


def auto_report(config: ConfigRoot) -> AutoReport:
    """Returns which reports a configuration and the environment ask for; the environment counts more, as in Poplar.

    Options of `autoReport` that have no effect are recorded; `ipu_tf.emulation.ignored_arguments()` lists them.

    Raises:
        ValueError: for an option of `autoReport` that there is not, a switch that is neither "true" nor "false", or
            text that is no JSON object.
        OSError: if the directory cannot be made or written to.
    """
    options = {**config.compilation_poplar_options, **_of_environment()}
    where = f"{_VARIABLE} or IPUConfig.{_ATTRIBUTE}"
    given = {name.removeprefix(AUTO_REPORT): options[name] for name in options if name.startswith(AUTO_REPORT)}
    unknown = [name for name in given if name not in AUTO_REPORT_OPTIONS]
    if unknown:
        known = ", ".join(f"{AUTO_REPORT}{name}" for name in AUTO_REPORT_OPTIONS)
        raise ValueError(f"{where} must have options among {known}. Received: {AUTO_REPORT}{unknown[0]}.")
    asked = {
        name for name in AUTO_REPORT_SWITCHES if name in given and _switch(f"{AUTO_REPORT}{name}", given[name], where)
    }
    _record(given, bool(asked))
    return AutoReport(_directory(given, where)) if asked else AutoReport()


def use_auto_report(wanted: AutoReport) -> None:
    """Writes these reports from now on; the page that the launcher asks for stays."""
    use(dataclasses.replace(setting(), directory=wanted.directory))


def capacity_check(config: ConfigRoot, ipus: tuple[int, ...]) -> CapacityCheck | None:
    """Returns what holds programs against the memory of IPUs: `debug.allowOutOfMemory`; by default they are warned of.

    Args:
        config: the configuration; the environment counts more.
        ipus: IPUs of each device, by its ordinal.

    Raises:
        ValueError: for a value that is neither "true" nor "false", or text that is no JSON object.
    """
    allowed = _given_switch(config, ALLOW_OUT_OF_MEMORY)
    return None if allowed else CapacityCheck(ipus, is_error=allowed is False)


def keeps_names(config: ConfigRoot) -> bool:
    """Returns whether compiled programs have names of ops and layers: `debug.retainDebugInformation`, or TRACE logs.

    Raises:
        ValueError: for a value that is neither "true" nor "false", or text that is no JSON object.
    """
    return bool(_given_switch(config, RETAIN_DEBUG_INFORMATION)) or log_level() == "TRACE"


def record_engine_options() -> None:
    """Records the options of `POPLAR_ENGINE_OPTIONS` that are not emulated, by name; warns of names that none has."""
    others = {name: value for name, value in _of_environment().items() if not is_emulated(name)}
    warn_of_unknown(_VARIABLE, others, _ATTRIBUTE)
    for name, value in others.items():
        record_ignored(f"{_VARIABLE} {name}", str(value), _NO_ENGINE)


def _record(given: Mapping[str, object], asked: bool) -> None:
    for name, value in given.items():
        if name in AUTO_REPORT_WITHOUT_EFFECT:
            record_ignored(f"{AUTO_REPORT}{name}", value, "reports have one form, and are written as a whole")
        elif name == AUTO_REPORT_DIRECTORY and not asked:
            record_ignored(f"{AUTO_REPORT}{name}", value, _NOT_ASKED_FOR)


def _directory(given: Mapping[str, object], where: str) -> Path:
    directory = Path(str(given.get(AUTO_REPORT_DIRECTORY, "."))).absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):  # also where access rights alone do not say it, as in /proc
            pass
    except OSError as error:
        name, why = f"{AUTO_REPORT}{AUTO_REPORT_DIRECTORY}", error.strerror or str(error)
        raise type(error)(f"{where}: {name} must be a folder to write in. Received: '{directory}' ({why}).") from error
    return directory


def _given_switch(config: ConfigRoot, name: str) -> bool | None:
    """Returns an option of the environment, else of the configuration, that is "true" or "false"; None for neither."""
    options = {**config.compilation_poplar_options, **_of_environment()}
    return _switch(name, options[name], f"{_VARIABLE} or IPUConfig.{_ATTRIBUTE}") if name in options else None


def _switch(name: str, value: object, where: str) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(f"{where}: {name} must be 'true' or 'false'. Received: {value!r}.")
    return text == "true"


def _of_environment() -> dict[str, object]:
    """Returns the options of the environment.

    Raises:
        ValueError: if they are no JSON object.
    """
    text = engine_options()
    if not text.strip():
        return {}
    try:
        options = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{_WANTED} Received: {text!r} ({error}).") from error
    if not isinstance(options, dict):
        raise ValueError(f"{_WANTED} Received: {text!r}.")
    return options
