"""Logger `ipu_tf`, and warnings that point at the user's line."""

from __future__ import annotations

import inspect
import logging
import sys
import warnings

_OWN_PACKAGES = ("ipu_tf", "keras_ipu")


class _StderrHandler(logging.Handler):
    """Prints records to stderr unless the program has configured logging."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record, unless the root logger's handlers show it anyway."""
        if not logging.getLogger().handlers:
            print(self.format(record), file=sys.stderr)


def _make_logger() -> logging.Logger:
    """The package's logger. Its level is INFO because Python's default would hide what the user must know."""
    log = logging.getLogger("ipu_tf")
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    log.addHandler(_StderrHandler())
    return log


LOGGER = _make_logger()
"""The logger named `ipu_tf`. `logging.getLogger("ipu_tf").setLevel(logging.WARNING)` silences its notes."""


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning that points at the nearest line outside this project."""
    depth = 0
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OWN_PACKAGES:
        depth += 1
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=depth + 1)
