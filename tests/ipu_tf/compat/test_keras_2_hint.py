"""A program that Keras 3 stops under the launcher ends with how it runs with Keras 2; others end as in Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_HINT = "set TF_USE_LEGACY_KERAS=1 (pip install tf_keras), which makes `tf.keras` Keras 2."
_OWN_LAYER = """
class Own(tf.keras.layers.Layer):
    def call(self, x):
        raise ValueError("of the program")

tf.keras.Sequential([tf.keras.Input((2,)), Own()])
"""
#: A program, and whether it is Keras 3 that stops it.
PROGRAMS = {
    "tf.keras.layers.Dense(1, no_such=2)": True,
    "tf.keras.layers.Dense(1)(tf.zeros((2, 3)), no_such=2)": True,
    "tf.keras.backend.no_such": True,
    "from tensorflow.keras.layers import NoSuch": True,
    _OWN_LAYER: False,
    "tf.reshape(tf.zeros(3), (2,))": False,
    "tf.nn.no_such": False,
    "import no_such_package": False,
    "import tf_keras\ntf.keras.backend.no_such": False,
    "raise SystemExit(tf.keras.__version__)": False,
}
_DRIVER = """
import sys
from ipu_tf._compat import launcher

for file in sys.argv[1:]:
    sys.modules.pop("tf_keras", None)
    try:
        launcher.main([file])
    except BaseException as error:
        print(file, type(error).__name__, *getattr(error, "__notes__", ["-"]))
"""


def _run(folder: Path, legacy: str) -> list[str]:
    names = []
    for place, text in enumerate(PROGRAMS):
        file = folder / f"program_{place}.py"
        file.write_text(f"import tensorflow as tf\n{text}\n")
        names.append(str(file))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_USE_LEGACY_KERAS": legacy}
    command = [sys.executable, "-c", _DRIVER, *names]
    ran = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    found = [line for line in ran.stdout.splitlines() if line.startswith(str(folder))]
    assert len(found) == len(names), ran.stdout + ran.stderr
    return found


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The last line of each program, which run in one process."""
    pytest.importorskip("tf_keras", reason="one of the programs imports Keras 2")
    return dict(zip(PROGRAMS, _run(tmp_path_factory.mktemp("programs"), "0"), strict=True))


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_error_of_keras_3_names_keras_2(ends: dict[str, str], program: str) -> None:
    assert ends[program].endswith(_HINT) is PROGRAMS[program], ends[program]
    assert PROGRAMS[program] or ends[program].endswith(" -")


def test_a_program_for_keras_2_is_not_told_of_it(tmp_path: Path) -> None:
    pytest.importorskip("tf_keras", reason="Keras 2 is the package tf_keras")
    assert [line for line in _run(tmp_path, "1") if "Keras 3" in line] == []
