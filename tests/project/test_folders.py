"""Folders: the path names the layer, imports between folders have no cycle, each `__init__.py` has a description."""

from __future__ import annotations

import ast
import graphlib
import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

import ipu_tf
from tests.project.test_layering import EXCEPTIONS, ROOT, imports

PACKAGES = ("ipu_tf", "keras_ipu")
#: Modules in the root of `ipu_tf` that users import or run, beside those that are attributes of the package.
PUBLIC_BESIDES = {
    "__main__": "`python -m ipu_tf`",
    "command_line": "`ipu-tf`",
    "ipu_iterator": "Graphcore's module name",
    "popdist": "Graphcore's package of this name",
    "popef": "Graphcore's package of this name",
    "poplar": "tensorflow.compiler.plugin.poplar",
    "tools": "console scripts",
    "supported": "`python -m ipu_tf.supported`",
    # The tiers below.
    "device": "the emulated device",
    "lowering": "from TensorFlow and JAX to device programs",
}

#: Imports, made when a name is asked for, that do not count, each with its reason.
DEFERRED = EXCEPTIONS | {
    # Graphcore's module has the names of iterators too.
    ("ipu_tf/ipu_infeed_queue.py", "ipu_tf.ipu_iterator"),
}


def modules() -> dict[str, Path]:
    """Every module of the packages with its file."""
    found = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        relative = path.relative_to(ROOT)
        name = relative.parent if path.name == "__init__.py" else relative.with_suffix("")
        found[".".join(name.parts)] = path
    return found


def is_private(module: str) -> bool:
    """Whether a module lies in a private folder, or below the surface."""
    parts = module.split(".")
    return parts[0] == "keras_ipu" or any(part.startswith("_") or part in ("device", "lowering") for part in parts[1:])


def node(module: str, path: Path) -> str:
    """Node of a module in the graph: its folder if that is private, else itself: each public module is a subject."""
    if path.name == "__init__.py" or not is_private(module) or module.count(".") == 1:
        return module
    return module.rpartition(".")[0]


def test_imports_between_folders_have_no_circle() -> None:
    files = modules()
    graph = defaultdict(set)
    for module, path in files.items():
        is_package = path.name == "__init__.py"
        for _, source, name in imports(ast.parse(path.read_text()), module, is_package):
            wanted = f"{source}.{name}" if f"{source}.{name}" in files else source
            if wanted not in files or (str(path.relative_to(ROOT)), wanted) in DEFERRED:
                continue
            if node(module, path) != node(wanted, files[wanted]):
                graph[node(module, path)].add(node(wanted, files[wanted]))
    assert list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


class _WithoutTypeImports(ast.NodeTransformer):
    """Removes the imports that only type checkers make."""

    def visit_If(self, node: ast.If) -> Any:
        self.generic_visit(node)
        return node.orelse if "TYPE_CHECKING" in ast.unparse(node.test) else node


def module_imports(sources: Mapping[str, str], packages: Collection[str] = ()) -> dict[str, set[str]]:
    """For each module those that it imports, also when a function is called, given their sources by name.

    Args:
        sources: by dotted name.
        packages: those of the modules that are the `__init__.py` of a folder.
    """
    graph: dict[str, set[str]] = {}
    for module, text in sources.items():
        tree = _WithoutTypeImports().visit(ast.parse(text))
        found = imports(tree, module, module in packages)
        wanted = {f"{source}.{name}" if f"{source}.{name}" in sources else source for _, source, name in found}
        graph[module] = {each for each in wanted if each in sources and each != module}
    return graph


def test_imports_between_modules_have_no_circle() -> None:
    files = modules()
    graph = module_imports(
        {module: path.read_text() for module, path in files.items()},
        {module for module, path in files.items() if path.name == "__init__.py"},
    )
    for file, wanted in DEFERRED:
        graph[".".join(Path(file).with_suffix("").parts)].discard(wanted)
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(files)  # raises CycleError


@pytest.mark.parametrize(
    ("text", "circle"),
    [
        ("from a.n import y", True),
        ("from a import n", True),
        ("def f():\n    import a.n", True),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a.n import y", False),
        ("import a.other", False),
    ],
)
def test_a_circle_of_modules_is_found(text: str, circle: bool) -> None:
    graph = module_imports({"a.m": text, "a.n": "from a.m import x", "a.other": ""})
    assert graph["a.n"] == {"a.m"}
    assert ("a.n" in graph["a.m"]) == circle


def test_each_folder_says_what_it_holds() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("__init__.py")
        if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


#: Modules from which on a private folder has to say what enters, what leaves, and where to start.
MANY_MODULES = 4


def unsaid(folder: str, docstring: str, modules: int) -> list[str]:
    """What the docstring of a folder with so many modules does not say."""
    if modules < MANY_MODULES or not is_private(folder):
        return []
    wanted = {"what enters": "Enters", "what leaves": r"Leaves|Enters and leaves", "where to start": "Start with `"}
    return [what for what, words in wanted.items() if not re.search(words, docstring)]


def test_large_private_folders_say_what_enters_what_leaves_and_where_to_start() -> None:
    folders = {module: path for module, path in modules().items() if path.name == "__init__.py"}
    texts = {module: ast.get_docstring(ast.parse(path.read_text())) or "" for module, path in folders.items()}
    counts = {module: len([*path.parent.glob("*.py")]) - 1 for module, path in folders.items()}
    wrong = {module: unsaid(module, text, counts[module]) for module, text in texts.items()}
    assert {module: missing for module, missing in wrong.items() if missing} == {}


def test_what_a_docstring_of_a_folder_does_not_say_is_found() -> None:
    assert unsaid("ipu_tf._loops", "Loops. Enters: a step.", 4) == ["what leaves", "where to start"]
    assert unsaid("ipu_tf._loops", "Loops. Enters and leaves: tensors. Start with `a`.", 4) == []
    assert unsaid("ipu_tf._loops", "Loops.", 3) == unsaid("ipu_tf.ops", "Ops.", 9) == []


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_the_root_holds_public_names_alone() -> None:
    names = {path.stem for path in (ROOT / "ipu_tf").glob("*.py")} - {"__init__"}
    names |= {path.parent.name for path in (ROOT / "ipu_tf").glob("*/__init__.py")}
    public = {*ipu_tf._MODULES, *PUBLIC_BESIDES}
    assert {name for name in names if not name.startswith("_")} - public == set()
    assert public - names == set()


#: How many small private files may have a single importer. Where one comes to it: does its noun need a file?
MOST_SMALL_FILES = 16
#: Lines below which a file is small.
SMALL = 60


def test_few_small_private_files_have_a_single_importer() -> None:
    files = modules()
    packages = {module for module, path in files.items() if path.name == "__init__.py"}
    sources = {module: path.read_text() for module, path in files.items()}
    importers: dict[str, list[str]] = defaultdict(list)
    for module, wanted in module_imports(sources, packages).items():
        for each in wanted:
            importers[each].append(module)
    small = {
        module
        for module, found in importers.items()
        if len(found) == 1
        and is_private(module)
        and module not in packages
        # Not counted: modules with Graphcore's names, and those that their own package imports, such as rules.
        and "_compat" not in module
        and module.rpartition(".")[0] != found[0]
        and "ipu_tf._compat.alias_names" not in found
        and len(sources[module].splitlines()) < SMALL
    }
    assert len(small) <= MOST_SMALL_FILES, sorted(small)
