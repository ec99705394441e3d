"""Documents: links, paths and names lead somewhere, lines are short, words fit a product."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import operator
import re
import subprocess
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LONGEST_LINE = 200

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:ipu_tf|keras_ipu|tests|examples|benchmarks|docs|\.ci)/[\w./-]*|[A-Z_]+\.md|setup\.cfg|Makefile")
#: Names in docstrings that are not the project's: of Graphcore, TensorFlow, Keras, papers, and of examples.
NAMES_OF_OTHERS = frozenset(
    {
        "check_numerics",
        "dense_cag_activation",
        "encoder_token_ids",
        "expect_partial",
        "include_top",
        "load_model",
        "lower_into_pipeline_stage",
        "max_x",
        "padding_mask",
        "slot_names",
        "stop_training",
        "token_ids",
        "unit_forget_bias",
        "v_hat",
    }
)
#: How documents do not speak: of who made the product when, and how the work was organised.
FORBIDDEN = {
    "a target of the work": r"\bgoals?\b|\bmilestones?\b|\bsprints?\b|\btickets?\b|\bto-?do\b|\bfixme\b",
    "a number of the work's list": r"(?<!jax )(?<!keras )(?<!tensorflow )(?<!xla )\bissues? #?\d",
    "a time of the work": r"\b(?:this|that|any|an earlier|the next|the last|each) session\b|\bworktrees?\b",
    "who works": r"\bhelpers? (?:did|was|were|will|has|have)\b|\bsub-?agents?\b|\bwas lent\b",
    "a verdict on the work": r"\bmiss(?:ed|es|ing)\b (?:the|its|their) \w+ of\b|\bmissed goals?\b",
}


def documents() -> list[Path]:
    """Every Markdown file of the repository."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode == 0:
        return [path for path in sorted(ROOT / name for name in found.stdout.split()) if path.exists()]
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])  # a copy without its history


DOCUMENTS = documents()
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def broken_links(document: Path, text: str) -> Iterator[str]:
    """The relative links of a document that lead to no file, or to no heading of one."""
    for link in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists() or (anchor and anchor not in anchors(text if not name else target.read_text())):
            yield link


def anchors(text: str) -> set[str]:
    """Link anchors of the headings of a text, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def missing_paths(text: str) -> Iterator[str]:
    """The paths of this repository in backticks that do not exist; a `*` has to match something."""
    paths = (code.partition("::")[0] for code in CODE.findall(FENCE.sub("", text)))
    yield from (path for path in paths if is_missing(path))


def is_missing(path: str) -> bool:
    """Whether a text is a path of this repository, or the name of a Python file, that does not exist."""
    if "*" in path:
        return bool(PATH.match(path) and re.fullmatch(r"[\w./*-]+", path)) and not any(ROOT.glob(path))
    if re.fullmatch(r"\w+\.py", path):
        return path not in file_names()
    # A Python file is named by its whole path.
    return bool(PATH.fullmatch(path) or re.fullmatch(r"[\w./-]+/[\w.-]+\.py", path)) and not (ROOT / path).exists()


@functools.cache
def file_names() -> frozenset[str]:
    """The names of the project's Python files, which a document may call by them alone."""
    folders = ("ipu_tf", "keras_ipu", "tests", "examples", "benchmarks")
    return frozenset(path.name for folder in folders for path in (ROOT / folder).rglob("*.py"))


def missing_names(text: str) -> Iterator[str]:
    """The dotted names of the packages in backticks that nothing has."""
    for code in CODE.findall(FENCE.sub("", text)):
        name = re.match(r"(?:ipu_tf|keras_ipu)(?:\.[A-Za-z_]\w*)+", code)
        if name and not exists(name.group()):
            yield code


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    module, _, attribute = name.rpartition(".")
    with contextlib.suppress(ModuleNotFoundError):
        if importlib.util.find_spec(name) is not None:
            return True
    while module:
        with contextlib.suppress(ModuleNotFoundError):
            if importlib.util.find_spec(module) is not None:
                return has_attribute(importlib.import_module(module), attribute)
        module, _, first = module.rpartition(".")
        attribute = f"{first}.{attribute}"
    return False


def has_attribute(thing: object, attribute: str) -> bool:
    """Whether an object has an attribute, by its dotted name."""
    try:
        operator.attrgetter(attribute)(thing)
    except AttributeError:
        return False
    return True


def names_in_code(tree: ast.Module) -> Iterator[str]:
    """The names that a module's code has: of variables, attributes, arguments, keywords, definitions, in strings."""
    strings = {id(node) for node in docstring_nodes(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in strings:
            yield from re.findall(r"\w+", node.value)
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(name := getattr(node, field, None), str):
                yield from name.split(".")


def docstring_nodes(tree: ast.Module) -> Iterator[ast.Constant]:
    """The strings of a module that stand by themselves: docstrings of definitions and of variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def unknown_names(text: str, known: Container[str]) -> list[str]:
    """The lower-case names in backticks, with an underscore or of a module after "Start with", that are not known."""
    found = re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text) + re.findall(r"Start with `(\w+)`", text)
    return [name for name in found if name not in known]


@functools.cache
def project_trees() -> dict[Path, ast.Module]:
    """The syntax trees of the packages' files."""
    paths = [path for package in ("ipu_tf", "keras_ipu", "pytest_ipu") for path in (ROOT / package).rglob("*.py")]
    return {path: ast.parse(path.read_text()) for path in paths}


def forbidden(text: str) -> Iterator[str]:
    """Phrases that speak of the work, each with what it speaks of."""
    for what, phrase in FORBIDDEN.items():
        for found in re.finditer(phrase, text, re.IGNORECASE):
            yield f"{found.group()!r} is {what}"


def long_lines(text: str) -> list[str]:
    """The lines that are too long, tables left out."""
    return [line for line in text.splitlines() if len(line) > LONGEST_LINE and not line.startswith("|")]


@each_document
def test_links_lead_somewhere(document: Path) -> None:
    assert list(broken_links(document, document.read_text())) == []


@each_document
def test_paths_exist(document: Path) -> None:
    assert list(missing_paths(document.read_text())) == []


@each_document
def test_names_exist(document: Path) -> None:
    assert list(missing_names(document.read_text())) == []


@each_document
def test_documents_speak_of_the_product(document: Path) -> None:
    assert list(forbidden(document.read_text())) == []


@each_document
def test_lines_are_short(document: Path) -> None:
    assert long_lines(document.read_text()) == []


def test_names_in_docstrings_are_of_something() -> None:
    trees = project_trees()
    known = {name for tree in trees.values() for name in names_in_code(tree)} | {path.stem for path in trees}
    known |= {path.parent.name for path in trees} | NAMES_OF_OTHERS
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, tree in trees.items()
        for node in docstring_nodes(tree)
        for name in unknown_names(str(node.value), known)
    ]
    assert wrong == []


def test_a_name_of_nothing_in_a_docstring_is_found() -> None:
    text = "`a_name` `data_rules` `an_argument` `x`. Start with `rules`."
    tree = ast.parse(f'def f(an_argument):\n    """{text}"""\n    a_name = 1')
    (node,) = docstring_nodes(tree)
    assert unknown_names(str(node.value), {*names_in_code(tree)}) == ["data_rules", "rules"]


def test_what_is_found() -> None:
    here = ROOT / "docs" / "README.md"
    text = "# A b, `c`\n[a](../README.md) [b](nowhere.md) [c](https://a.b/c) [d](#a-b-c) [e](#other)\n"
    assert list(broken_links(here, text)) == ["nowhere.md", "#other"]
    text = "`ipu_tf/loops.py` `ipu_tf/no.py` `tests/*/nothing*.py` `ipu_tf.loops` `README.md` `NOWHERE.md` `a/b`"
    assert list(missing_paths(text)) == ["ipu_tf/no.py", "tests/*/nothing*.py", "NOWHERE.md"]
    assert list(missing_paths("`program.py` `nowhere.py` `device/seed.py`")) == ["nowhere.py", "device/seed.py"]
    text = "`ipu_tf.loops.repeat(n)` `ipu_tf.loops` `ipu_tf.lops` `ipu_tf.loops.no` `ipu_tf.config.IPUConfig.no`"
    assert list(missing_names(text)) == ["ipu_tf.lops", "ipu_tf.loops.no", "ipu_tf.config.IPUConfig.no"]
    assert len(list(forbidden("The goal of issue 6 was met in this session."))) == 3
    assert list(forbidden("`Session.run` in a TF1 session; see JAX issue 12868.")) == []
    assert long_lines("|" + "a" * 300 + "\n" + "b" * 201 + "\nc") == ["b" * 201]
