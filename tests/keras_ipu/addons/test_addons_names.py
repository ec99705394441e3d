"""The addons and the legacy Keras modules are found under Graphcore's names, old and new."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

import keras_ipu
from keras_ipu.addons import layers, losses

#: A program, and what holds after it. All run in one process.
PROGRAMS = {
    "from ipu_tensorflow_addons.keras import layers": "layers is real('keras_ipu.addons.layers')",
    "import ipu_tensorflow_addons.keras.layers as deep": "deep.Embedding is real('keras_ipu.addons.layers').Embedding",
    "from ipu_tensorflow_addons.keras.optimizers import AdamIpuOptimizer as a": "a.__name__ == 'AdamIpuOptimizer'",
    "from ipu_tensorflow_addons.keras.losses import CTCLoss as loss": "loss.__name__ == 'CTCLoss'",
    "import ipu_tensorflow_addons as ita": "ita.keras.layers is real('keras_ipu.addons.layers')",
    "from tensorflow.python.ipu.keras.layers import LSTM": "LSTM is real('keras_ipu.addons.layers').LSTM",
    "from tensorflow.python import ipu": "ipu.keras.layers.Embedding is real('keras_ipu.addons.layers').Embedding",
    "from tensorflow.python import ipu as b": "b.keras.losses.CTCLoss is b.keras.CTCLoss",
    "from tensorflow.python.ipu.keras.optimizers import IpuOptimizer as m": "m.__name__ == 'IpuOptimizer'",
    "import keras": "keras.ipu.optimizers is real('keras_ipu.optimizers')",
    "from keras.ipu.layers import CaptureUpstreamGradients as c": "c.__module__.startswith('keras_ipu.layers')",
    "from ipu_tensorflow_addons.v1.layers import PopnnLSTM as p": "p is real('ipu_tf.ops.rnn_ops').PopnnLSTM",
    "from ipu_tensorflow_addons.layers.rnn_ops import PopnnGRU as g": "g is real('ipu_tf.ops.rnn_ops').PopnnGRU",
}
DRIVER = """
import json, sys
from importlib import import_module as real
from ipu_tf._compat.aliases import install_aliases
install_aliases()
outcome = {}
for program, check in json.loads(sys.argv[1]).items():
    names = {"real": real}
    try:
        exec(program, names)
        outcome[program] = bool(eval(check, names))
    except Exception as error:
        outcome[program] = repr(error)
print(json.dumps(outcome))
"""


@pytest.fixture(scope="module")
def outcome() -> dict[str, Any]:
    """Outcome of every program."""
    command = [sys.executable, "-c", DRIVER, json.dumps(PROGRAMS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_name_leads_to_the_addons(outcome: dict[str, Any], program: str) -> None:
    assert outcome[program] is True


def test_attributes_of_the_package() -> None:
    assert keras_ipu.losses is losses
    assert keras_ipu.layers.GroupNorm is layers.GroupNormalization
    for module in (keras_ipu, keras_ipu.layers):
        with pytest.raises(AttributeError, match="has no attribute 'no_such'"):
            _ = module.no_such


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Model", "IPUModel", "tf.keras.Model"),
        ("Sequential", "IPUSequential", "tf.keras.Sequential"),
        ("PipelineModel", "PipelineModel", "tf.keras.Model"),
        ("PipelineSequential", "PipelineSequential", "tf.keras.Sequential"),
    ],
)
def test_a_deleted_model_says_what_took_its_place(name: str, old: str, new: str) -> None:
    with pytest.raises(RuntimeError) as raised:
        getattr(keras_ipu, name)(1, gradient_accumulation_count=2)
    assert str(raised.value) == (
        f"{old} has been deleted. Use {new} within a `tensorflow.python.ipu.ipu_strategy.IPUStrategy` instead."
    )
