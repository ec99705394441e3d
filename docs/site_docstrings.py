"""Extension of mkdocstrings: `Example:` sections of docstrings are shown as code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SECTION = re.compile(r"^( *)Example:\n((?:\1 +.*\n?|\n)*)", re.MULTILINE)


class ExamplesAsCode(griffe.Extension):  # type: ignore[misc]
    """Makes an `Examples:` section, which is shown as code, of every `Example:`."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Changes the docstring of an object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = _SECTION.sub(_as_code, obj.docstring.value)


def _as_code(section: re.Match[str]) -> str:
    indent, body = section.groups()
    if ">>>" in body:
        return f"{indent}Examples:\n{body}"
    first = next(line for line in body.splitlines() if line.strip())
    deeper = len(first) - len(first.lstrip())
    lines = [line[deeper:] for line in body.rstrip().splitlines()]
    fenced = ["```python", *lines, "```"]
    return "\n".join([f"{indent}Examples:", *(f"{indent}    {line}".rstrip() for line in fenced)]) + "\n"
