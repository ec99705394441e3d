"""Graphcore's module names lead to the very modules of this project."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import inspect
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu_tf._compat.alias_names import ALIASES, alias_entry, graphcore_name, real_name
from ipu_tf._compat.aliases import AliasFinder, GraphcoreModuleMissing
from ipu_tf._patches import installation
from ipu_tf._patches.import_hooks import add_fallback, after_import
from ipu_tf._patches.patch import Patch, When

#: A program, and what holds after it. All run in one process, one after the other, each with fresh names.
SAME_MODULE = {
    # The longest entry decides, also where a module of that name below the shorter one is loaded already.
    "import keras.ipu.layers, tensorflow.python.ipu.keras.layers as sdk_2_5": (
        "sdk_2_5 is real('keras_ipu.addons.layers')"
    ),
    "from tensorflow.python import ipu": "ipu is ipu_tf",
    "import tensorflow.python.ipu": "sys.modules['tensorflow.python.ipu'] is ipu_tf",
    "import tensorflow.python.ipu.loops as loops": "loops is ipu_tf.loops",
    "from tensorflow.python.ipu import loops": "loops is sys.modules['ipu_tf.loops']",
    "import tensorflow.python.ipu.scopes": "sys.modules['tensorflow.python.ipu.scopes'] is ipu_tf.scopes",
    "from tensorflow.python.ipu.config import IPUConfig": "IPUConfig is real('ipu_tf.config').IPUConfig",
    "from tensorflow.python import ipu as a": "a.scopes is real('ipu_tf.scopes')",
    "import keras": "keras.ipu is keras_ipu",
    "from keras import ipu": "ipu is keras_ipu",
    "import tensorflow as tf": "tf.keras.ipu is keras_ipu",
    "from tensorflow import keras": "keras.ipu is keras_ipu",
    "import tensorflow.keras as keras": "keras.ipu is keras_ipu",
    "from tensorflow.keras import ipu": "ipu is keras_ipu",
    "import tensorflow.keras.ipu": "sys.modules['tensorflow.keras.ipu'] is keras_ipu",
    "from tensorflow.python import ipu as b": "b.keras is keras_ipu",
    "from tensorflow.python.keras.datasets import mnist": "mnist is real('keras.datasets.mnist')",
    "from tensorflow.python import keras as old": "old.datasets is real('keras.datasets')",
}
#: A program that must fail -> what the error must say.
MISSING = {
    "import tensorflow.python.ipu.no_such": "tensorflow.python.ipu.no_such",
    "from tensorflow.python.ipu import no_such": "tensorflow.python.ipu.no_such",
    "from tensorflow.python.ipu.no_such.deeper import x": "tensorflow.python.ipu.no_such",
    "from tensorflow.python.ipu.ops import no_such_ops": "tensorflow.python.ipu.ops.no_such_ops",
    "from tensorflow.keras.ipu import no_such": "keras.ipu.no_such",
    "import keras.ipu.no_such": "keras.ipu.no_such",
}
DRIVER = """
import json, sys
from importlib import import_module as real
import ipu_tf
from ipu_tf._compat.aliases import install_aliases
install_aliases()
install_aliases()
quick = "tensorflow" not in sys.modules
outcome = {}
for program, check in json.loads(sys.argv[1]):
    names = {"sys": sys, "real": real, "ipu_tf": ipu_tf}
    try:
        exec(program, names)
        names["keras_ipu"] = real("keras_ipu")
        outcome[program] = check and eval(check, names)
    except Exception as error:
        outcome[program] = [type(error).__name__, isinstance(error, ImportError), str(error)]
rules = ipu_tf.config.IPUConfig().graphcore_rules
own = [module.__spec__.name for name, module in sys.modules.items() if ".python.ipu" in name]
print(json.dumps({"quick": quick, "outcome": outcome, "own": own, "rules": rules}))
"""


class Driven(TypedDict):
    """Reports of the driver."""

    quick: bool
    outcome: dict[str, object]
    own: list[str]
    rules: bool


@pytest.fixture(scope="module")
def driven() -> Driven:
    """The outcome of every program above, in a process of its own, whose imports are otherwise untouched."""
    programs = [*SAME_MODULE.items(), *((program, "") for program in MISSING)]
    command = [sys.executable, "-c", DRIVER, json.dumps(programs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: Driven = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("program", SAME_MODULE)
def test_an_alias_is_the_very_module(driven: Driven, program: str) -> None:
    assert driven["outcome"][program] is True


@pytest.mark.parametrize("program", MISSING)
def test_a_missing_module_is_named(driven: Driven, program: str) -> None:
    outcome = driven["outcome"][program]
    assert isinstance(outcome, list)
    kind, is_import_error, text = outcome
    assert (kind, is_import_error) == ("GraphcoreModuleMissing", True)
    assert f"No module named {MISSING[program]!r}" in text
    assert "not (yet) provided" in text


def test_installing_imports_no_tensorflow(driven: Driven) -> None:
    assert driven["quick"]


def test_graphcores_rules_hold_by_default(driven: Driven) -> None:
    assert driven["rules"] is True


def test_a_module_keeps_its_own_spec(driven: Driven) -> None:
    assert driven["own"]
    assert all(name.startswith(("ipu_tf", "keras_ipu")) for name in driven["own"])


@given(st.sampled_from(sorted(ALIASES)), st.lists(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), max_size=3))
def test_names_below_an_alias_lead_below_its_target(alias: str, parts: list[str]) -> None:
    name = ".".join([alias, *parts])
    entry = alias_entry(name, ALIASES)
    assert entry is not None
    assert name == entry + name[len(entry) :]
    assert all(len(other) <= len(entry) for other in ALIASES if f"{name}.".startswith(f"{other}."))
    assert real_name(name, ALIASES) == ALIASES[entry] + name[len(entry) :]


@given(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=1, max_size=3))
def test_graphcores_name_leads_back(parts: list[str]) -> None:
    for package in ("ipu_tf", "keras_ipu"):
        real = ".".join([package, *parts])
        graphcore = graphcore_name(real, ALIASES)
        assert graphcore is not None
        # A longer entry may own the name: `tensorflow.python.ipu.keras` is not in ipu_tf.
        if alias_entry(graphcore, ALIASES) in ("tensorflow.python.ipu", "keras.ipu"):
            assert real_name(graphcore, ALIASES) == real


def test_other_names_are_left_alone() -> None:
    for name in ("numpy", "tensorflow", "tensorflow.python", "tensorflow.python.ipux", "keras", "ipu_tfx.a"):
        assert alias_entry(name, ALIASES) is None
        assert graphcore_name(name, ALIASES) is None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path for modules of the test's own, which are forgotten afterwards."""
    before, finders = set(sys.modules), list(sys.meta_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, **files: str) -> None:
    """Writes modules: `a__b` is a/b.py."""
    for name, text in files.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def test_a_module_is_executed_once(folder: Path) -> None:
    write(folder, other__init="", real__part="runs = []\nruns.append(1)")
    (folder / "other" / "init.py").rename(folder / "other" / "__init__.py")
    (folder / "real" / "__init__.py").write_text("")
    sys.meta_path.insert(0, AliasFinder({"other.alias": "real"}))
    aliased = importlib.import_module("other.alias.part")
    assert aliased is importlib.import_module("real.part")
    assert aliased.__spec__ is not None
    assert aliased.__name__ == aliased.__spec__.name == "real.part"
    assert aliased.runs == [1]


def test_a_module_that_is_an_attribute_can_be_imported(folder: Path) -> None:
    write(folder, real__deep__part="value = 3")
    (folder / "real" / "__init__.py").write_text("from real.deep import part")
    sys.meta_path.insert(0, AliasFinder({"short": "real"}))
    assert importlib.import_module("short.part").value == 3


def test_an_error_inside_a_module_is_not_taken_for_its_absence(folder: Path) -> None:
    write(folder, real__broken="import a_module_that_nobody_has")
    sys.meta_path.insert(0, AliasFinder({"short": "real"}))
    with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has") as raised:
        importlib.import_module("short.broken")
    assert not isinstance(raised.value, GraphcoreModuleMissing)


def test_a_yielding_alias_yields(folder: Path) -> None:
    write(folder, taken="where = 'its own'", real="where = 'ours'")
    sys.meta_path.insert(0, AliasFinder({"taken": "real", "free": "real"}, frozenset({"taken", "free"})))
    assert importlib.import_module("taken").where == "its own"
    assert importlib.import_module("free").where == "ours"


def test_a_folder_holds_an_alias(folder: Path) -> None:
    write(folder, real="value = 1")
    sys.meta_path.insert(0, AliasFinder({"made.up.alias": "real"}, folders=frozenset({"made", "made.up"})))
    assert importlib.import_module("made.up.alias").value == 1
    assert importlib.import_module("made.up").alias.value == 1


def test_a_callback_runs_once_the_module_is_whole(folder: Path) -> None:
    write(folder, waited_for="early = 1\nlate = 2")
    seen: list[set[str]] = []
    after_import("waited_for", lambda module: seen.append(set(vars(module))))
    assert seen == []
    module = importlib.import_module("waited_for")
    assert len(seen) == 1
    assert {"early", "late"} <= seen[0]
    # Whoever asks the module's loader for more than loading gets it.
    assert "late = 2" in inspect.getsource(module)
    assert isinstance(module.__loader__, importlib.machinery.SourceFileLoader)


def test_a_fallback_gives_only_what_is_lacking(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "PATCHES", (Patch("small:__getattr__", When.USE, "for this test", __name__),))
    monkeypatch.setattr(installation, "_INSTALLED", {})
    text = """
        own = 1
        def __getattr__(name):
            if name == "made":
                return 2
            raise AttributeError(name)
    """
    write(folder, small=text)
    small = importlib.import_module("small")
    add_fallback(small, {"own", "made", "lent"}.__contains__, lambda name: f"lent {name}")
    assert (small.own, small.made, small.lent) == (1, 2, "lent lent")
    assert not hasattr(small, "unknown")


def test_every_target_is_ours_or_keras() -> None:
    assert {target.split(".")[0] for target in ALIASES.values()} == {"ipu_tf", "keras_ipu", "keras", "tensorflow"}
    assert all(ast.parse(f"import {name}") for name in [*ALIASES, *ALIASES.values()])
