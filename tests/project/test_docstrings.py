"""Every public name is documented, and every example in a docstring does what it says."""

from __future__ import annotations

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for package in ("ipu_tf", "keras_ipu", "pytest_ipu") for path in (ROOT / package).rglob("*.py"))
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def undocumented(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    """The public functions, classes and methods without a docstring, by their dotted names."""
    for node in body:
        if isinstance(node, ast.If | ast.Try):
            yield from undocumented(node.body, prefix)
        if not isinstance(node, Definition) or node.name.startswith("_") or is_repeated(node):
            continue
        if not ast.get_docstring(node):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node.body, f"{prefix}{node.name}.")


def is_repeated(node: Definition) -> bool:
    """Whether the documentation belongs to another definition of the same name: a property, an overload."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"setter", "deleter", "overload", "override"})


def missing(text: str) -> list[str]:
    """Names without a docstring in a module of the given text; "module" for the module itself."""
    tree = ast.parse(text)
    own = [] if ast.get_docstring(tree) or not tree.body else ["module"]
    return own + list(undocumented(tree.body))


def module_name(path: Path) -> str:
    """The name by which a file of the project is imported."""
    path = path.relative_to(ROOT)
    return ".".join((path.parent if path.name == "__init__.py" else path.with_suffix("")).parts)


def with_examples() -> list[str]:
    """The modules whose text has an example; the others need not be imported to be checked."""
    return [module_name(path) for path in FILES if ">>> " in path.read_text()]


def test_every_public_name_has_a_docstring() -> None:
    lacking = [f"{path.relative_to(ROOT)}: {name}" for path in FILES for name in missing(path.read_text())]
    assert FILES
    assert not lacking, "\n".join(lacking)


def test_what_counts_as_undocumented() -> None:
    text = (
        "def a(): pass\n"
        "def _b(): pass\n"
        "class C:\n"
        "    '''C.'''\n"
        "    def d(self): pass\n"
        "    def __init__(self): pass\n"
        "    @property\n"
        "    def e(self):\n"
        "        '''E.'''\n"
        "    @e.setter\n"
        "    def e(self, value): pass\n"
        "class _F:\n"
        "    def g(self): pass\n"
    )
    assert missing(text) == ["module", "a", "C.d"]


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 0
    assert results.failed == 0, f"{name}: {results.failed} of {results.attempted} lines, reported above"
