"""Saves compiled programs as executable files to `serialization_output_folder`."""

from __future__ import annotations

import hashlib
import logging
import re
from pathlib import Path

from ipu_tf._state.registry import ProcessValue, register_state
from ipu_tf.device.files.executable_file import SUFFIX, ExportError, contents, write
from ipu_tf.device.program.program import Program

_log = logging.getLogger("ipu_tf")
_folder: ProcessValue[Path | None] = register_state("saved programs: their folder", ProcessValue(None))


def use(directory: str) -> None:
    """Sets the directory in which programs are saved; an empty name turns saving off."""
    _folder.value = Path(directory) if directory else None


def save(program: Program, saved: set[Path]) -> None:
    """Saves a program before it runs, if saving is on; once in each directory.

    Args:
        program: the program.
        saved: the directories it was saved in before; the present one is added.
    """
    directory = _folder.value
    if directory is None or directory in saved:
        return
    saved.add(directory)
    try:
        payload = contents(program)
    except ExportError as error:
        _log.warning("ipu_tf: '%s' is not saved in '%s': %s", program.name, directory, error)
        return
    name = re.sub(r"\W+", "_", program.name).strip("_") or "program"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}.{hashlib.sha256(payload).hexdigest()[:16]}{SUFFIX}"
    write(path, payload)
    _log.info("ipu_tf: the program has been saved to %s", path)
