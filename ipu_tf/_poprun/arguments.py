"""Parses `poprun`'s command line and configuration files to `Settings`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ipu_tf._poprun.options import BOOLEANS, OPTIONS, Option, boolean

_BY_NAME = {name: option for option in OPTIONS for name in (option.name, option.short) if name}


class UsageError(Exception):
    """A command line that `poprun` does not take; its text says why."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """A parsed command line.

    Attributes:
        values: of every option, by `Option.key`.
        given: the keys of options on the command line or in the configuration file.
        program: the program and its arguments.
    """

    values: Mapping[str, Any]
    given: frozenset[str]
    program: tuple[str, ...]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


def parse(argv: Sequence[str]) -> Settings:
    """Parses a command line.

    Args:
        argv: what follows `poprun`.

    Raises:
        UsageError: an option there is not, a value that it does not take, a refused option, or no program.
    """
    texts, program = _split(argv)
    file = texts.get("import_config")
    if file is not None:
        texts = {**_imported(file), **texts}
    values = {option.key: _value(option, texts) for option in OPTIONS}
    for option in OPTIONS:
        if option.refused and values[option.key]:
            raise UsageError(f"{option.name}: {option.refused}.")
    if not program:
        raise UsageError("which program? Give it after the options: poprun [options] program [program args].")
    return Settings(values, frozenset(texts), program)


def export(settings: Settings) -> None:
    """Writes the options that were given to the file of `--export-config`.

    Raises:
        UsageError: if the file is there already and `--overwrite-config` is not given, or cannot be written.
    """
    path = Path(settings["export_config"])
    left_out = ("export_config", "import_config", "overwrite_config")
    given = {key: settings[key] for key in sorted(settings.given) if key not in left_out}
    try:
        with path.open("w" if settings["overwrite_config"] else "x") as file:
            json.dump({key.replace("_", "-"): value for key, value in given.items()}, file, indent=2)
    except FileExistsError:
        raise UsageError(f"--export-config: {path} is there already; --overwrite-config yes replaces it.") from None
    except OSError as error:
        raise UsageError(f"--export-config: {error}.") from None


def usage() -> str:
    """Returns the text of `poprun --help`."""
    lines = ["usage: poprun [options] program [program args]", "", "options:"]
    for option in OPTIONS:
        names = ", ".join(name for name in (option.short, option.name) if name)
        default = "" if option.default in (None, "", False) or option.flag else f" [{option.default}]"
        note = f" (no effect: {option.no_effect})" if option.no_effect else " (refused)" if option.refused else ""
        lines.append(f"  {names + ('' if option.flag else ' arg'):<36}{option.help}{default}{note}")
    return "\n".join([*lines, "  -h, --help", "  --version"])


def _split(argv: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Splits a command line into the texts of its options, by key, and the program with its arguments."""
    texts: dict[str, str] = {}
    left = list(argv)
    while left and left[0].startswith("-"):
        name, equals, text = left.pop(0).partition("=")
        option = _BY_NAME.get(name)
        if option is None:
            raise UsageError(f"there is no option {name}; see poprun --help.")
        if not equals:
            text = _next(option, name, left)
        joined = option.key.startswith("mpi_") and option.key in texts
        texts[option.key] = f"{texts[option.key]} {text}" if joined else text
    return texts, tuple(left)


def _next(option: Option, name: str, left: list[str]) -> str:
    """Takes an option's value off the words that are left; a boolean may go without."""
    if option.flag or (option.parse is boolean and not (left and left[0].lower() in BOOLEANS)):
        return "yes"
    if not left:
        raise UsageError(f"{name} needs a value.")
    return left.pop(0)  # it may begin with dashes, as in `--mpi-global-args --tag-output`


def _value(option: Option, texts: Mapping[str, str]) -> Any:
    text = texts.get(option.key)
    if text is None:
        return option.default
    try:
        return option.parse(text)
    except ValueError as error:
        raise UsageError(f"{option.name} {error}.") from None


def _imported(path: str) -> dict[str, str]:
    try:
        found = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"--import-config: {error}.") from None
    known = {option.key for option in OPTIONS}
    if not isinstance(found, dict) or not {str(key).replace("-", "_") for key in found} <= known:
        raise UsageError(f"--import-config: {path} must be a JSON object of poprun's options. Received: {found!r}.")
    texts = {key.replace("-", "_"): value for key, value in found.items()}
    return {key: ("yes" if value else "no") if isinstance(value, bool) else str(value) for key, value in texts.items()}
