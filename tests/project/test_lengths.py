"""Lengths of functions and files: what is read at a time stays short."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.test_layering import ROOT

PACKAGES = ("ipu_tf", "keras_ipu", "pytest_ipu")
OTHERS = ("tests", "examples", "benchmarks")
#: Lines of code of a function's body, with those of functions in it, from which on it is long.
LONG = 25
#: For folders: how many functions may be long, and the lines of the longest: `pipeline`, which passes on Graphcore's
#: arguments by name.
CEILINGS: dict[tuple[str, ...], tuple[int, int]] = {PACKAGES: (3, 51), OTHERS: (30, 40)}
#: Lines of a file from which on it is long, how many of the packages' files may be long, and the lines of the longest.
LONG_FILE, MOST_LONG_FILES, LONGEST_FILE = 200, 60, 475

_NO_CODE = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


def lengths(source: str) -> Iterator[tuple[str, int]]:
    """Yields each function's name and its lines of code: of its body, without docstrings, comments and blank lines."""
    tree = ast.parse(source)
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(node):
            code.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, len(code & set(range(node.body[0].lineno, (node.end_lineno or 0) + 1)))


def files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def long_functions(*folders: str) -> dict[str, int]:
    """Returns the functions of more than `LONG` lines of code, `path: name`, and how many each has."""
    return {
        f"{path.relative_to(ROOT)}: {name}": length
        for path in files(*folders)
        for name, length in lengths(path.read_text())
        if length > LONG
    }


@pytest.mark.parametrize(
    ("source", "length"),
    [
        ("def f():\n    return 1", 1),
        ('def f():\n    """Text\n    of two lines."""\n    # comment\n\n    return 1', 1),
        ("def f(\n    x,\n    y,\n):\n    a = (\n        x,\n        y,\n    )\n    return a", 5),
        ("def f():\n    def g():\n        return 1\n    return g", 3),
        ('def f():\n    text = """a\n\n    b"""\n    return text', 4),
    ],
)
def test_lines_of_code_are_counted(source: str, length: int) -> None:
    assert dict(lengths(source))["f"] == length


@pytest.mark.parametrize("folders", CEILINGS, ids=["packages", "others"])
def test_few_functions_are_long(folders: tuple[str, ...]) -> None:
    most, longest = CEILINGS[folders]
    found = long_functions(*folders)
    assert len(found) <= most, found
    assert max(found.values()) <= longest, found


def test_few_files_are_long() -> None:
    found = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files(*PACKAGES)}
    long = {path: length for path, length in found.items() if length > LONG_FILE}
    assert len(long) <= MOST_LONG_FILES, long
    assert max(long.values()) <= LONGEST_FILE, long
