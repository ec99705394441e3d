"""Initial weights of programs for Keras 2: TensorFlow 2.6's where TensorFlow alone is seeded, else those of today."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tf_keras", reason="Keras 2 is the package tf_keras, which only its programs need")

ROOT = Path(__file__).resolve().parents[3]
#: The oracle are TensorFlow's own random ops, of which each took the next seed after `tf.random.set_seed`.
_PROGRAM = """
import random
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

LIMIT = (6 / 5) ** 0.5
DEVIATION = (2 / 3) ** 0.5 / 0.87962566103423978

def weights():
    x = tf.keras.Input(2)
    y = tf.keras.layers.Dense(3)(x)
    fixed = tf.keras.layers.Dense(3, kernel_initializer=tf.keras.initializers.GlorotUniform(5))
    last = tf.keras.layers.Dense(4, kernel_initializer="he_normal")
    model = tf.keras.Model(x, [last(y), fixed(x)])
    return [model.layers[1].get_weights()[0], last.get_weights()[0], fixed.get_weights()[0]]

def drawn():
    with tf.device("CPU"):
        first = tf.random.uniform([2, 3], -LIMIT, LIMIT)
        last = tf.random.truncated_normal([3, 4], 0.0, DEVIATION)
        return [first, last, tf.random.stateless_uniform([2, 3], [5, 0], -LIMIT, LIMIT)]

def same(found, wanted):
    return all(np.array_equal(*each) for each in zip(found, wanted, strict=True))

config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
for scope in (tf.distribute.get_strategy().scope(), ipu.ipu_strategy.IPUStrategy().scope()):
    tf.random.set_seed(1)
    with scope:
        found = weights()
    tf.random.set_seed(1)
    assert same(found, drawn()), (found, drawn())
assert not same(weights()[:1], weights()[:1])
tf.random.set_seed(None)
assert not same(weights()[:1], weights()[:1])

random.seed(3)
tf.random.set_seed(1)
seed = random.Random(3).randint(1, int(1e9))
assert same(weights()[:1], [tf.random.stateless_uniform([2, 3], [seed, 0], -LIMIT, LIMIT)])
random.seed()
tf.keras.utils.set_random_seed(3)
assert same(weights()[:1], [tf.random.stateless_uniform([2, 3], [seed, 0], -LIMIT, LIMIT)])
print("weights as wanted")
"""


def test_weights_are_those_of_the_seed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "ipu_tf", str(tmp_path / "program.py")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.stdout.strip().endswith("weights as wanted"), ran.stderr[-3000:]


def test_weights_without_the_launcher_are_keras_own() -> None:
    program = """
import random, ipu_tf, tf_keras
import tensorflow as tf
assert type(random.seed).__name__ == "method"
tf.random.set_seed(1)
x = tf_keras.initializers.GlorotUniform()([2, 3])
tf.random.set_seed(1)
y = tf_keras.initializers.GlorotUniform()([2, 3])
assert not (x == y).numpy().any()
"""
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
