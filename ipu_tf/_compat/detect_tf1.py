"""Detects from a program's source whether it was written for TensorFlow 1."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

from ipu_tf._compat.tf1_program_names import (
    EAGER_MODE_NAMES,
    FORMER_KEYWORDS,
    FORMER_NAMES,
    GRAPH_MODE_NAMES,
    SETTLING_NAMES,
)

TODAY = "tensorflow"
V1_MODULES = frozenset({"tensorflow.compat.v1", "tensorflow._api.v2.compat.v1"})


@dataclasses.dataclass(frozen=True)
class ProgramStyle:
    """Style of a program: TensorFlow 1 or 2.

    Attributes:
        tf1: it was written for TensorFlow 1.
        former: its module `tensorflow` is TensorFlow 1's: it spells names which today's has not.
        settles: it turns TensorFlow 2's behaviour, or eager execution, on or off itself.
    """

    tf1: bool
    former: bool
    settles: bool


@dataclasses.dataclass(frozen=True)
class _Uses:
    """Names that files use, as dotted names."""

    today: frozenset[str] = frozenset()
    v1: frozenset[str] = frozenset()
    imports_today: bool = False
    imports_v1: bool = False
    former_keywords: bool = False
    settles: bool = False

    def __or__(self, other: _Uses) -> _Uses:
        names = (field.name for field in dataclasses.fields(self))
        return _Uses(*(getattr(self, name) | getattr(other, name) for name in names))


def program_style(script: Path, root: Path | None = None) -> ProgramStyle:
    """Detects the style of `script` and of the modules it imports from its own folder or the folder `root`.

    A program is one for TensorFlow 1 when it spells a name that `tensorflow` has no more (`tf.placeholder`),
    when it runs a graph with `tf.compat.v1` (its sessions, its placeholders), or when `tensorflow.compat.v1`
    is all it imports of TensorFlow; the last two only without `tf.function` and gradient tapes. A program for
    TensorFlow 2 that uses helpers of `tf.compat.v1`, its logging say, is not.

    Raises:
        OSError: the script cannot be read.
        SyntaxError: the script is not Python.
    """
    uses = functools.reduce(_Uses.__or__, (_uses(tree) for tree in _program(script, root)))
    eager = bool(EAGER_MODE_NAMES & (uses.today | uses.v1))
    graph = bool(GRAPH_MODE_NAMES & uses.v1) or (uses.imports_v1 and not uses.imports_today)
    former = bool(FORMER_NAMES & uses.today) or uses.former_keywords
    return ProgramStyle(tf1=former or (graph and not eager), former=former, settles=uses.settles)


def _program(script: Path, root: Path | None) -> Iterator[ast.Module]:
    """Parses the script and the modules that lie beside it or in `root`, each file once."""
    folders = (script.resolve().parent, *([root] if root else []))
    seen = {script.resolve()}
    waiting = [(script.resolve(), ast.parse(script.read_bytes(), filename=str(script)))]
    while waiting:
        file, tree = waiting.pop()
        yield tree
        found = [path for folder in folders for path in _local_files(_imported(tree), folder)]
        found += [path for folder, name in _imported_beside(tree, file) for path in _local_files([name], folder)]
        for path in found:
            if path not in seen:
                seen.add(path)
                waiting.extend(_parse_module(path))


def _parse_module(path: Path) -> list[tuple[Path, ast.Module]]:
    try:
        return [(path, ast.parse(path.read_bytes(), filename=str(path)))]
    except SyntaxError:
        # The program may never import this file; if it does, Python itself reports the error, at the import.
        return []


def _local_files(names: Iterable[str], folder: Path) -> Iterator[Path]:
    """Lists the files in `folder` that imports of these modules would load."""
    for name in names:
        path = folder.joinpath(*name.split("."))
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                yield candidate.resolve()


def _imported(tree: ast.Module) -> Iterator[str]:
    """Lists every module a tree may import, packages before their contents."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from _with_parents(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*")


def _imported_beside(tree: ast.Module, file: Path) -> Iterator[tuple[Path, str]]:
    """Lists every module a file may import by a relative name, with the folder that the name begins in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and 0 < node.level <= len(file.parents):
            folder, before = file.parents[node.level - 1], f"{node.module}." if node.module else ""
            parents = _with_parents(node.module) if node.module else ()
            for name in [*parents, *(before + each.name for each in node.names)]:
                yield folder, name


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _uses(tree: ast.Module) -> _Uses:
    bound = _bindings(tree)
    modules = frozenset(bound.values())
    spelled = {_spelled(node, bound) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)}
    today: set[str] = set()
    v1: set[str] = set()
    for name in spelled:
        root = next((root for root in V1_MODULES if name.startswith(root + ".")), TODAY)
        (today if root == TODAY else v1).add(name[len(root) + 1 :])
    return _Uses(
        today=frozenset(today),
        v1=frozenset(v1),
        imports_today=TODAY in modules,
        imports_v1=bool(V1_MODULES & modules),
        former_keywords=any(_has_former_keyword(node, bound) for node in ast.walk(tree)),
        settles=any(name.rpartition(".")[2] in SETTLING_NAMES for name in spelled),
    )


def _has_former_keyword(node: ast.AST, bound: dict[str, str]) -> bool:
    """Returns whether a node calls a function of today's `tensorflow` with a keyword that only TensorFlow 1's took."""
    if not isinstance(node, ast.Call):
        return False
    name = _spelled(node.func, bound)
    keywords = {keyword.arg for keyword in node.keywords}
    former = FORMER_KEYWORDS & keywords or (name.startswith("tensorflow.initializers.") and "dtype" in keywords)
    return bool(former) and name.startswith(f"{TODAY}.") and not any(name.startswith(root + ".") for root in V1_MODULES)


def _bindings(tree: ast.Module) -> dict[str, str]:
    """Maps the names that imports bind to TensorFlow, or to something in it, to dotted names."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == TODAY:
                    bound[alias.asname or TODAY] = alias.name if alias.asname else TODAY
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == TODAY:
            bound.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return bound


def _spelled(node: ast.expr, bound: dict[str, str]) -> str:
    """Resolves an expression such as `tf.train.Saver` to its full dotted name; "" for any other."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in bound:
        return ""
    return ".".join([bound[node.id], *reversed(parts)])
