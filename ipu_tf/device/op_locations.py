"""`OpLocation`: an op with the source lines of the user's program that created it, for error messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ipu_tf.device.source_lines import SourceLine, indented

_MOST_NAMES = 4
_LOCATED = "_ipu_tf_located"


@dataclasses.dataclass(frozen=True)
class OpLocation:
    """Op with the user's source lines that created it.

    Attributes:
        name: the op's name, with those of the calls around it.
        op_type: TensorFlow's type of the op, e.g. `Where`; empty where it is not known.
        lines: the line, innermost first if an installed package stands between; empty where it is not known.
    """

    name: str
    op_type: str = ""
    lines: tuple[SourceLine, ...] = ()

    def __str__(self) -> str:
        return _described([self.name], self.op_type, self.lines)


def described(locations: Sequence[OpLocation], most: int = 4) -> str:
    """Formats several ops with their source lines, grouped by line, at most so many lines."""
    by_line: dict[tuple[str, tuple[SourceLine, ...]], list[str]] = {}
    for location in locations:
        by_line.setdefault((location.op_type, location.lines), []).append(location.name)
    texts = [_described(list(dict.fromkeys(names)), kind, lines) for (kind, lines), names in by_line.items()]
    more = [f"and {len(texts) - most} more lines"] if len(texts) > most else []
    return "\n".join([*texts[:most], *more])


def with_text(error: BaseException, text: str) -> BaseException:
    """Appends a text to an error's message, or as a note if the message is no single text; once. Returns the error."""
    if has_location(error):
        return error
    if not isinstance(error, KeyError) and len(error.args) == 1 and str(error) == error.args[0]:
        error.args = (f"{error}\n{text}",)
    else:
        error.add_note(text)
    return mark_located(error)


def has_location(error: BaseException) -> bool:
    """Returns whether an error's message has the user's source line already."""
    return getattr(error, _LOCATED, False)


def mark_located(error: BaseException) -> BaseException:
    """Marks that an error's message has the user's source line. Returns the error."""
    setattr(error, _LOCATED, True)
    return error


def _described(names: Sequence[str], op_type: str, lines: Sequence[SourceLine]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    kind = f" ({op_type})" if op_type and op_type not in shown else ""
    return "\n".join([f"{shown}{more}{kind}", *(indented(line, "  ") for line in lines)])
