"""Every module and test file can be the first that a process imports: TensorFlow is imported before what patches it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.project.test_folders import module_imports, modules

#: What `import tensorflow` imports, once `ipu_tf` is: see the end of `ipu_tf/__init__.py`.
WITH_TENSORFLOW = "ipu_tf._sessions.session_devices"


class _WithoutFunctions(ast.NodeTransformer):
    """Removes functions, whose imports are made when they are called."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        return ast.copy_location(ast.Pass(), node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return ast.copy_location(ast.Constant(None), node)


def imported_first(sources: Mapping[str, str], packages: set[str]) -> dict[str, set[str]]:
    """For each module those that its import imports, the packages that it lies in included."""
    texts = {name: ast.unparse(_WithoutFunctions().visit(ast.parse(text))) for name, text in sources.items()}
    graph = module_imports(texts, packages)
    for name, wanted in graph.items():
        for each in (name, *wanted):
            parts = each.split(".")
            wanted |= {".".join(parts[:length]) for length in range(1, len(parts))} & sources.keys() - {name}
    return graph


def reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """The modules that importing `start` imports, itself included."""
    found, waiting = {start}, [start]
    while waiting:
        waiting += (new := graph[waiting.pop()] - found)
        found |= new
    return found


def half_imported(sources: Mapping[str, str], packages: set[str], start: str) -> list[str]:
    """Modules that TensorFlow's import needs, and that import TensorFlow before any package around them does."""
    graph = imported_first(sources, packages)
    direct = {name for name, text in sources.items() if _imports_tensorflow(text)}
    return sorted(
        name
        for name in reached(graph, start) - packages
        if reached(graph, name) & direct and not {part for part in packages if name.startswith(f"{part}.")} & direct
    )


def _imports_tensorflow(text: str) -> bool:
    tree = _WithoutFunctions().visit(ast.parse(text))
    return any("tensorflow" in source for source in _roots(tree))


def _roots(tree: ast.AST) -> list[str]:
    return [
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    ]


def test_modules_that_patch_tensorflow_are_not_imported_by_halves() -> None:
    files = modules()
    sources = {name: path.read_text() for name, path in files.items()}
    packages = {name for name, path in files.items() if path.name == "__init__.py"}
    assert len(reached(imported_first(sources, packages), WITH_TENSORFLOW)) > 10
    assert half_imported(sources, packages, WITH_TENSORFLOW) == []


@pytest.mark.parametrize(("package", "found"), [("", ["p.m", "p.patches"]), ("import tensorflow", [])])
def test_a_module_imported_by_halves_is_found(package: str, found: list[str]) -> None:
    sources = {"p": package, "p.m": "import tensorflow", "p.patches": "from p.m import x", "p.other": ""}
    assert half_imported(sources, {"p"}, "p.patches") == found


@pytest.mark.parametrize("module", ["ipu_tf.lowering.importer.rules", "ipu_tf._sessions.eager_ops"])
def test_a_module_is_the_first_import_of_a_process(module: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
