"""A script that only adds the three lines has the `keras` and `numpy` of before: nothing of what older programs get."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What programs for Keras 2 and NumPy 1 get under the launcher and after `install_aliases()`, a line each.
OLDER = (
    "np.int",
    "np.float_",
    "np.product",
    "keras.layers.Dense(1.0)",
    "keras.layers.Layer().updates",
    "keras.layers.Layer().add_weight('name', (2,)).shape",
    "keras.layers.experimental",
    "keras.layers.LocallyConnected1D",
    "keras.backend.learning_phase",
    "keras.losses.LossFunctionWrapper",
    "keras.optimizers.SGD(lr=0.5)",
    "keras.optimizers.SGD().get_updates",
    "keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(), dynamic=False)",
    "keras.Input((2,)).ref()",
    "tf.concat([keras.Input((2,))] * 2, 1)",
    "keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save_weights(folder + '/any_name')",
    "importlib.import_module('horovod.tensorflow')",
    "importlib.import_module('mpi4py')",
    "importlib.import_module('tensorflow_addons')",
    "importlib.import_module('tensorflow.python.ipu')",
    "importlib.import_module('keras.ipu')",
)
_PROGRAM = """
import importlib, inspect, json, re, sys, tempfile
import keras, numpy as np, tensorflow as tf

folder = tempfile.mkdtemp()

def outcome(text):
    try:
        return "gives " + type(eval(text)).__name__
    except Exception as error:
        return type(error).__name__ + ": " + re.sub("0x[0-9a-f]+|tmp[^/ ]*", "", str(error))

def outcomes():
    return {{text: outcome(text) for text in {older!r}}}

def contents(package):
    found = {{}}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == package and module is not None:
            for key, value in list(vars(module).items()):
                found[name, key] = id(value)
                if inspect.isclass(value) and value.__module__.split(".")[0] == package:
                    found.update({{(name, key, each): id(of) for each, of in vars(value).items()}})
    return found

before, arrays, names = outcomes(), contents("numpy"), set(contents("keras"))
{lines}
after, arrays_after, names_after = outcomes(), contents("numpy"), contents("keras")
known = {{name[0] for name in names}}
print(json.dumps({{
    "before": before,
    "after": after,
    "numpy": [name for name in arrays if arrays_after.get(name) != arrays[name]],
    "names": sorted(".".join(name) for name in set(names_after) - names if name[0] in known and len(name) == 2),
}}))
"""
_THREE_LINES = """
import ipu_tf as ipu
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(np.zeros((4, 2)), np.zeros((4, 1)), 2, verbose=0)
"""
_ALIASES = "import ipu_tf; ipu_tf.install_aliases(); import keras_ipu"


def _found(lines: str) -> dict[str, Any]:
    text = _PROGRAM.format(older=OLDER, lines=lines)
    ran = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def three_lines() -> dict[str, Any]:
    """What a script finds before and after the three lines."""
    return _found(_THREE_LINES)


@pytest.mark.parametrize("text", OLDER)
def test_what_older_programs_get_is_as_absent_as_before(three_lines: dict[str, Any], text: str) -> None:
    assert three_lines["after"][text] == three_lines["before"][text]


def test_numpy_has_the_objects_of_before(three_lines: dict[str, Any]) -> None:
    assert three_lines["numpy"] == []


def test_modules_of_keras_have_no_other_names_than_before(three_lines: dict[str, Any]) -> None:
    assert three_lines["names"] == []


def test_each_of_them_is_there_after_install_aliases() -> None:
    """Else the comparison above would compare nothing."""
    found = _found(_ALIASES)
    assert [text for text in OLDER if found["after"][text] == found["before"][text]] == []
