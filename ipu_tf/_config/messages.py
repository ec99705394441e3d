"""Logger `ipu_tf` with its level and destination, and warnings that point at the user's line."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.device_log import TRACE
from ipu_tf.device.environment import log_destination, log_level

_OWN_PACKAGES = ("ipu_tf", "keras_ipu")
_LEVELS = {
    "OFF": logging.CRITICAL + 1,
    "ERR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}
"""Poplar's levels."""
_QUIET = ("ipu_tf.compilation", "ipu_tf.device")
"""Loggers that say nothing below a warning unless the environment asks for it."""


class _StderrHandler(logging.Handler):
    """Prints records to stderr unless the program has configured logging; or to where `log_to` says."""

    def __init__(self) -> None:
        super().__init__()
        self._destination = "stderr"
        self._file: logging.FileHandler | None = None

    def use(self, destination: str) -> None:
        """Sets where records go; opens a file once, since a write that fails later must not end a training."""
        file = None if destination in ("stderr", "stdout") else logging.FileHandler(destination, encoding="utf-8")
        before, self._file, self._destination = self._file, file, destination
        if before is not None:
            before.close()

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record, unless the root logger's handlers show it anyway."""
        if self._file is not None:
            self._file.handle(record)
        elif not logging.getLogger().handlers:
            try:
                print(self.format(record), file=sys.stderr if self._destination == "stderr" else sys.stdout)
            except Exception:  # as the handlers of the standard library do: whatever it is, the program goes on
                self.handleError(record)


def _make_logger() -> logging.Logger:
    """The package's logger. Its level is INFO because Python's default would hide what the user must know."""
    log = logging.getLogger("ipu_tf")
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    log.addHandler(_StderrHandler())
    return log


def log_to(destination: str) -> None:
    """Sets where records of the logger `ipu_tf` go.

    Args:
        destination: "stderr", "stdout", or a file, which is appended to.

    Raises:
        OSError: if the file cannot be written to.
    """
    for handler in LOGGER.handlers:
        if isinstance(handler, _StderrHandler):
            handler.use(destination)


LOGGER = _make_logger()
"""The logger named `ipu_tf`. `logging.getLogger("ipu_tf").setLevel(logging.WARNING)` silences its notes."""
_applied: ProcessValue[tuple[str, str]] = register_state("log settings of the environment", ProcessValue(("", "")))


def apply_log_settings() -> None:
    """Sets what the environment asks for; leaves the logger as it is where it asks for nothing, or for the same again.

    Raises:
        ValueError: for a level that there is not.
        OSError: if the file of the destination cannot be written to.
    """
    level = log_level()
    if level and level not in _LEVELS:
        raise ValueError(f"POPLAR_LOG_LEVEL must be one of {', '.join(_LEVELS)}. Received: {level!r}.")
    destination = log_destination()
    if _applied.value == (level, destination):
        return  # what the program has set since stays
    if destination:
        _log_to_destination(destination)
    if level:
        LOGGER.setLevel(_LEVELS[level])
        for name in _QUIET:
            logging.getLogger(name).setLevel(_LEVELS[level])
    _applied.value = level, destination


def _log_to_destination(destination: str) -> None:
    try:
        log_to(destination)
    except OSError as error:
        wanted = "POPLAR_LOG_DEST must be stderr, stdout or a file that can be written to"
        raise type(error)(f"{wanted}. Received: {destination!r} ({error.strerror}).") from None


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning that points at the nearest line outside this project."""
    depth = 0
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OWN_PACKAGES:
        depth += 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=depth + 1)
