"""State of the process is registered, listed in docs/architecture.md, and cleared as a whole."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

import pytest

from ipu_tf._state import registry
from ipu_tf._state.registry import ProcessValue, clear_states, register_state
from ipu_tf.device.environment import runtime_folder
from tests.helpers.module_state import Variable, package_sources, variables

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ipu_tf", "keras_ipu", "pytest_ipu")
#: The registry itself.
UNREGISTERED = {("ipu_tf._state.registry", "_STATES")}


@functools.cache
def project_variables() -> list[Variable]:
    """The changing variables of the packages."""
    return variables(package_sources(ROOT, PACKAGES))


def test_what_changes_is_registered() -> None:
    found = project_variables()
    assert {(each.module, each.name) for each in found if each.what == "loose"} == UNREGISTERED


def test_kinds_have_names_of_their_own() -> None:
    found = [each for each in project_variables() if each.what == "registered"]
    assert len({each.kind for each in found}) == len(found) > 30


def test_the_table_lists_every_kind_with_its_owner() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| `([^|]+\.py)` \| (cleared|kept: [^|]+) \|$", text, re.MULTILINE)
    assert sorted(rows) == sorted(
        (each.kind, f"{each.module.replace('.', '/')}.py", f"kept: {each.kept}" if each.kept else "cleared")
        for each in project_variables()
        if each.what == "registered"
    )


def test_every_context_variable_that_is_set_is_reset() -> None:
    sources = package_sources(ROOT, PACKAGES)
    scopes = [each for each in project_variables() if each.what == "scope"]
    uses = {each: len(re.findall(rf"\b{each.name}\.set\(", sources[each.module])) for each in scopes}
    within = [each for each in scopes if re.search(rf"\bcontext_value\({each.name}\b", sources[each.module])]
    assert sum(uses.values()) + len(within) > 10
    for each, count in uses.items():
        assert len(re.findall(rf"\b{each.name}\.reset\(", sources[each.module])) == count, each


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a = {}\ndef f(): a['x'] = 1", "a"),
        ("a = []\ndef f(): a.append(1)", "a"),
        ("a: set[int] = set()\ndef f(x): (a.add if x else a.discard)(x)", "a"),
        ("a = 0\ndef f():\n    global a\n    a = 1", "a"),
        ("import itertools\na = itertools.count()", "a"),
        ("import weakref\na = weakref.WeakKeyDictionary()", "a"),
        ("class C:\n    def f(self): self.x = 1\na = C()", "a"),
        ("class C:\n    def f(self): self.x.append(1)\na = C()", "a"),
        ("class C: pass\na = C()\ndef f(): a.x = 1", "a"),
        ("class C: pass\na = C()\ndef f(): a.x.append(1)", "a"),
        ("@dataclasses.dataclass\nclass C:\n    x: int = 0\na = C()", "a"),
        ("class C:\n    a = {}\n    def f(self): self.a['x'] = 1", "C.a"),
        ("class C:\n    a = []\ndef f(): C.a.append(1)", "C.a"),
        ("@functools.cache\ndef a(x: int) -> None: print(x)", "a"),
    ],
)
def test_a_changing_variable_is_found(text: str, name: str) -> None:
    assert [(each.name, each.what) for each in variables({"ipu_tf.m": text})] == [(name, "loose")]


def test_a_variable_that_another_module_changes_is_found() -> None:
    sources = {"ipu_tf.m": "a = {}", "ipu_tf.n": "from ipu_tf.m import a as b\ndef f(): b.clear()"}
    assert [(each.module, each.name) for each in variables(sources)] == [("ipu_tf.m", "a")]


@pytest.mark.parametrize(
    "text",
    [
        "a = {'x': 1}\ndef f(): return a['x']",
        "a = {'x': 1}\na |= {'y': 2}",
        "a = []\ndef f():\n    a = []\n    a.append(1)",
        "class C:\n    def __init__(self): self.x = 1\na = C()",
        "@dataclasses.dataclass(frozen=True)\nclass C:\n    x: int = 0\na = C()",
        "class C:\n    a = {}\n    def f(self): return self.a",
    ],
)
def test_a_constant_is_no_state(text: str) -> None:
    assert variables({"ipu_tf.m": text}) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a = contextvars.ContextVar('a')", "scope"),
        ("a = threading.Lock()", "lock"),
        ("@functools.cache\ndef a(x: int) -> int: return x", "memo"),
        ("a = register_state('kind', {})\ndef f(): a['x'] = 1", "registered"),
    ],
)
def test_kinds_of_variables_are_told_apart(text: str, what: str) -> None:
    assert [(each.name, each.what) for each in variables({"ipu_tf.m": text})] == [("a", what)]


def test_states_are_cleared_unless_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_STATES", {})
    cleared: dict[str, int] = register_state("table", {})
    value = register_state("value", ProcessValue(0))
    kept: list[int] = register_state("list", [], kept="for this test")
    cleared["x"], value.value = 1, 2
    kept.append(3)
    clear_states()
    assert (cleared, value.value, kept) == ({}, 0, [3])


def test_state_that_cannot_be_cleared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_STATES", {})
    with pytest.raises(TypeError, match="Received: int for 'number'"):
        register_state("number", 3)
    assert register_state("number", 3, kept="for this test") == 3


def test_files_on_processes_of_the_tests_are_their_own() -> None:
    folder = runtime_folder()
    assert folder.parent.name.startswith("ipu_tf_tests-") and folder.parent.stat().st_uid == os.getuid()
