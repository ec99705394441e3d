"""Examines whether one of Graphcore's public names is supported, differs, is refused or is missing."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
from typing import Any

from ipu_tf._supported.signature import differences
from ipu_tf.emulation import EmulationError

_IGNORED = re.compile(r"without effect|no effect|accepted for compat|\bignored\b|\baccepted\b|\brecorded\b")
_PLAIN = (bool, int, float, str, enum.Enum)


class Status(enum.Enum):
    """Status of a public name: supported, different, refused or missing."""

    WORKS = "works"
    DIFFERS = "works, with other parameters"
    REFUSED = "refused"
    MISSING = "missing"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One public name.

    Attributes:
        name: the name within its module.
        status: what it does here.
        note: which arguments have no effect, how parameters differ, or why it is refused.
    """

    name: str
    status: Status
    note: str = ""


def examine(module: str, wanted: str) -> Entry:
    """Looks a name up under Graphcore's module name.

    Args:
        module: Graphcore's name of the module; its aliases must be installed.
        wanted: the name, with its parameters in parentheses if it is known to take some.
    """
    name, called, parameters = wanted.removesuffix(")").partition("(")
    try:
        found = attribute(module, name)
    except EmulationError as error:
        return Entry(name, Status.REFUSED, _first_sentence(str(error)))
    except (ImportError, AttributeError):
        return Entry(name, Status.MISSING)
    if _only_raises(found):
        return Entry(name, Status.REFUSED, _first_sentence(inspect.getdoc(found) or ""))
    if called and (different := differences(parameters, found)):
        return Entry(name, Status.DIFFERS, "; ".join(different))
    ignored = ignored_parameters(found)
    notes = [f"without effect: {', '.join(f'`{each}`' for each in ignored)}"] if ignored else []
    if inspect.isclass(found):
        notes += [f"refused: {each}" for each in re.findall(r"^Refused: (.+?)\.", inspect.getdoc(found) or "", re.M)]
    return Entry(name, Status.WORKS, "; ".join(notes))


def ignored_parameters(found: Any) -> tuple[str, ...]:
    """Finds parameters that are documented as accepted without effect.

    Example:
        >>> def function(x, depth):
        ...     '''Does something.
        ...
        ...     Args:
        ...         x: a tensor.
        ...         depth: recorded without effect.
        ...     '''
        >>> ignored_parameters(function)
        ('depth',)
    """
    if isinstance(found, (*_PLAIN, property)):
        return ()
    text = inspect.getdoc(found) or ""
    _, _, arguments = text.partition("\nArgs:\n")
    arguments = re.split(r"\n\S", arguments)[0]
    items = re.findall(r"^    (\*{0,2}\w+)[^:\n]*:(.*(?:\n      .*)*)", arguments, re.M)
    return tuple(name for name, words in items if _IGNORED.search(words))


def attribute(module: str, name: str) -> Any:
    """What a dotted name of a module stands for."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _only_raises(found: Any) -> bool:
    """Returns whether a call always raises: its return annotation is `NoReturn`."""
    target = found.__init__ if inspect.isclass(found) else found
    annotation = getattr(target, "__annotations__", {}).get("return")
    return str(annotation).rpartition(".")[2] == "NoReturn"


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.:]) |\n\n", " ".join(text.split("\n\n")[0].split()))[0]
