"""Every change to TensorFlow, Keras and JAX is in one table and can be uninstalled."""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ipu_tf._patches import installation
from ipu_tf._patches.document import document
from ipu_tf._patches.keras_table import KERAS
from ipu_tf._patches.patch import Patch, When
from ipu_tf._patches.table import BASIC, PATCHES, TENSORFLOW

ROOT = Path(__file__).resolve().parents[2]
#: Prints what a program changed, its entries in the table, and what is still changed after `patches.uninstall()`.
_PROGRAM = """
import json, sys
sys.path.insert(0, {root!r})
import tensorflow as tf, keras, jax.monitoring
from tests.helpers.library_attributes import attributes, changed
import tensorflow.python.framework.test_util, tensorflow.python.compiler.xla.xla
import tensorflow.python.ops.gen_candidate_sampling_ops, keras.src.callbacks.callback_list
{imports}
{before}
before = attributes()
{program}
from ipu_tf import patches
after = attributes()
listed = [(target, patches.PATCHES.index(patch)) for target, patch in patches.installed()]
patches.uninstall()
print(json.dumps([changed(before, after), listed, changed(before, attributes())]))
"""
_KERAS = """
import numpy as np
import ipu_tf as ipu
cfg = ipu.config.IPUConfig()
cfg.auto_select_ipus = 2
cfg.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.set_asynchronous_callbacks(True)
    model.compile("sgd", "mse", steps_per_execution=2)
    model.fit(np.ones((8, 3)), np.ones((8, 2)), batch_size=2, verbose=0)
    keras.models.clone_model(model)
# What Keras 2 and NumPy 1 had is for programs of the launcher alone.
assert not hasattr(np, "int") and not hasattr(keras.layers.Layer, "updates") and not hasattr(keras.KerasTensor, "ref")
"""
_SESSIONS = """
import ipu_tf as ipu
import ipu_tf.test_utils
cfg = ipu.config.IPUConfig()
cfg.auto_select_ipus = 2
cfg.configure_ipu_system()
with tf.device("/device:IPU:0"):
    print(tf.constant(1.0) + 1.0, file=sys.stderr)
with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    with ipu.scopes.ipu_scope("/device:IPU:0"), ipu.scopes.ipu_shard(0):
        session.run(tf.constant(1.0) * 2.0)
"""
_LAUNCHER = """
from pathlib import Path
import tempfile
from ipu_tf._compat import launcher
script = Path(tempfile.mkdtemp()) / "script.py"
script.write_text("import tensorflow as tf\\nsession = tf.Session()\\n")
launcher.prepare(script)
"""


@pytest.mark.parametrize(
    ("program", "backend", "before", "families"),
    [
        (_KERAS, "tensorflow", "", (*TENSORFLOW, *KERAS, *BASIC)),
        (_KERAS, "jax", "", (*TENSORFLOW, *KERAS, *BASIC)),
        (_SESSIONS, "tensorflow", "", (*TENSORFLOW, *BASIC)),
        (_LAUNCHER, "tensorflow", "tf.compat.v1.disable_v2_behavior()", PATCHES),
    ],
    ids=["keras", "keras-jax", "sessions", "launcher"],
)
def test_what_a_program_changes_is_listed_and_taken_off(
    program: str, backend: str, before: str, families: tuple[Patch, ...]
) -> None:
    imports = "import keras_hub.src.models.causal_lm" if program is _KERAS and backend == "tensorflow" else ""
    text = _PROGRAM.format(root=str(ROOT), program=program, before=before, imports=imports)
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-3000:]
    during, listed, left = json.loads(ran.stdout.splitlines()[-1])
    assert len(listed) > 5
    assert set(during) <= {target for target, _ in listed}, "changed, and not in ipu_tf._patches.table"
    assert [target for target, index in listed if PATCHES[index] not in families] == []
    if imports:
        assert any(name.startswith("keras_hub") for name in during)
    assert left == [], "still changed after patches.uninstall()"


def test_what_the_three_lines_do_not_need_is_not_installed() -> None:
    text = _PROGRAM.format(root=str(ROOT), program=_KERAS, before="", imports="")
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT, check=True)
    listed = json.loads(ran.stdout.splitlines()[-1])[1]
    others = {target: PATCHES[index].when for target, index in listed}
    assert {target for target, when in others.items() if when in (When.ALIASES, When.LAUNCHER, When.TESTING)} == set()


def test_no_entry_has_a_wildcard_for_an_attribute_or_class() -> None:
    assert [patch.target for patch in PATCHES if "*" in patch.target.partition(":")[2]] == []


def test_each_entry_names_a_module_of_ours() -> None:
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in ("ipu_tf", "keras_ipu")
        for path in (ROOT / package).rglob("*.py")
    }
    assert [patch for patch in PATCHES if not fnmatch.filter(modules, patch.replacement)] == []


def test_the_entry_of_a_target_is_that_of_the_module_that_replaces_it() -> None:
    target = "keras.src.models.sequential:Sequential.add"
    entries = [installation.entry(target, by) for by in ("keras_ipu.scope.model_patches", "keras_ipu.legacy.keras_2")]
    assert [entry.when for entry in entries] == [When.SCOPE, When.ALIASES]
    with pytest.raises(LookupError, match=f"{target} would be changed by keras_ipu.training and is not in"):
        installation.entry(target, "keras_ipu.training")


def test_a_patch_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(LookupError, match=r"json:dumps would be changed by .*test_patches and is not in"):
        installation.replace_in(json, "dumps", lambda stock: stock)
    assert json.dumps is importlib.import_module("json").dumps


def test_somebody_elses_replacement_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "PATCHES", (Patch("colorsys:rgb_to_hsv", When.USE, "for this test", __name__),))
    monkeypatch.setattr(installation, "_INSTALLED", {})
    module: Any = importlib.import_module("colorsys")
    stock = module.rgb_to_hsv
    installation.replace_in(module, "rgb_to_hsv", lambda stock: lambda *rgb: stock(*rgb))
    ours, theirs = module.rgb_to_hsv, lambda *rgb: None
    module.rgb_to_hsv = theirs
    with pytest.raises(RuntimeError, match="colorsys:rgb_to_hsv cannot be put back"):
        installation.uninstall_all()
    assert module.rgb_to_hsv is theirs
    module.rgb_to_hsv = ours
    installation.uninstall_all()
    assert module.rgb_to_hsv is stock


def test_the_document_is_the_table() -> None:
    assert (ROOT / "docs" / "patches.md").read_text() == document()
