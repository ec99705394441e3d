"""What Keras did in TensorFlow 2.6 and does no more, for programs for Keras 2 that the launcher runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tf_keras", reason="Keras 2 is the package tf_keras, which only its programs need")

ROOT = Path(__file__).resolve().parents[3]
_RANKS = """
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

X, Y = np.linspace(-1, 1, 8 * 3 * 5).reshape(8, 3, 5).astype("float32"), np.arange(8, dtype="int32") % 3
ranks = []

class Overridden(tf.keras.Model):
    def train_step(self, data):
        ranks.append([leaf.shape.rank for leaf in data])
        return super().train_step(data)

def trained(labels, model=tf.keras.Model):
    tf.keras.utils.set_random_seed(1)
    x = tf.keras.Input((3, 5))
    made = model(x, tf.keras.layers.Dense(1)(x))
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile("sgd", loss, steps_per_execution=2)
    losses = made.fit(X, labels, batch_size=4, epochs=2, shuffle=False, verbose=0).history["loss"]
    return [*losses, made.evaluate(X, labels, batch_size=4, verbose=0), *made.get_weights()]

def same(found, wanted):
    return all(np.allclose(*each, rtol=1e-6) for each in zip(found, wanted, strict=True))

# The labels of a batch are one for each sample, of which the prediction is three numbers.
wanted = trained(Y[:, None])
assert same(trained(Y), wanted)
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    assert same(trained(Y, Overridden), wanted)
    assert ranks and all(each == [3, 1] for each in ranks), ranks
    inputs = tf.keras.Input(1)
    model = tf.keras.Model(inputs, inputs * 2)
    assert model.predict(np.arange(4.0, dtype="float32"), batch_size=2).tolist() == [[0.0], [2.0], [4.0], [6.0]]
print("as wanted")
"""
_SHARED = """
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

X, Y = np.arange(8, dtype="float32")[:, None], [np.ones((8, 1), "float32"), np.full((8, 1), 3, "float32")]

def logs(device):
    x = tf.keras.Input(1)
    outputs = [tf.keras.layers.Dense(1, kernel_initializer="ones", name=name)(x) for name in ("first", "second")]
    model, metric = tf.keras.Model(x, outputs), tf.keras.metrics.MeanAbsoluteError()
    model.compile(tf.keras.optimizers.SGD(0.0), "mse", metrics={"first": metric, "second": metric})
    return model.fit(X, Y, batch_size=4, verbose=0).history

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategy().scope():
    found = logs("ipu")
means = [float(abs(X - each).mean()) for each in Y]
shown = [values for name, values in found.items() if name.endswith("mean_absolute_error")]
assert shown and all(np.allclose(each, np.mean(means)) for each in shown), (found, means)
stock = logs("cpu")
assert stock.keys() == found.keys() and all(np.allclose(stock[name], found[name]) for name in stock), (stock, found)
print("as wanted")
"""
_RESNET = """
import numpy as np
import tensorflow as tf
from tensorflow.python.keras.applications import resnet

def stacks(x):
    return resnet.stack1(x, 2, 1, stride1=1, name="conv2")

def made(**options):
    tf.keras.utils.set_random_seed(1)
    return resnet.ResNet(stacks, False, True, "small", True, None, None, (32, 32, 3), None, 2, **options)

own, other = made(), made(layers=tf.keras.layers)
assert own.layers[2].name == "conv1_conv" and other.layers == [], own.layers
assert isinstance(other, tf.keras.Model) and len(other.weights) == len(own.weights)
x = np.ones((2, 32, 32, 3), "float32")
assert np.array_equal(own.predict(x, verbose=0), other.predict(x, verbose=0))
assert tf.keras.applications.resnet.ResNet50(weights=None).layers
from tensorflow.python.keras.applications import imagenet_utils
import tensorflow.python.keras.applications.vgg16 as vgg16
assert imagenet_utils.preprocess_input is resnet.imagenet_utils.preprocess_input
assert vgg16.VGG16 is tf.keras.applications.VGG16
print("as wanted")
"""


def _run(program: str, folder: Path, *launcher: str) -> str:
    (folder / "program.py").write_text(program)
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, *launcher, str(folder / "program.py")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return ran.stdout.strip() + ran.stderr[-3000:]


@pytest.mark.parametrize(
    "program", [_RANKS, _SHARED, _RESNET], ids=["ranks of batches", "shared metric", "layers of a ResNet"]
)
def test_the_launcher_gives_it(program: str, tmp_path: Path) -> None:
    assert "as wanted" in _run(program, tmp_path, "-m", "ipu_tf")


def test_without_the_launcher_batches_are_left_alone(tmp_path: Path) -> None:
    program = """
import ipu_tf
import numpy as np
import tf_keras
x = tf_keras.Input(())
assert tf_keras.Model(x, x * 2).predict(np.arange(3.0), verbose=0).tolist() == [0, 2, 4]
from tf_keras.src.engine import training
assert training.Model.train_step.__module__ == training.__name__
print("as wanted")
"""
    assert "as wanted" in _run(program, tmp_path)
