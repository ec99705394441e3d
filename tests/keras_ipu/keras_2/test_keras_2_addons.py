"""Graphcore's addons and TensorFlow Addons for Keras 2, which a program for it gets under the launcher."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu_tf._compat.alias_names import KERAS_2_ITSELF
from keras_ipu import addons
from keras_ipu.legacy.tensorflow_addons import optimizers as tfa_of_keras_3

keras_2: Any = pytest.importorskip("tf_keras", reason="Keras 2 is the package tf_keras, which only its programs need")
of_keras_2: Any = importlib.import_module("keras_ipu.keras_2.addons")
tfa: Any = importlib.import_module("keras_ipu.keras_2.tensorflow_addons").optimizers

ROOT = Path(__file__).resolve().parents[3]
_RNG = np.random.default_rng(0)
_IMAGES = _RNG.normal(size=(2, 3, 3, 8)).astype("float32")
_WORDS = np.array([[1, 2, 0], [3, 3, 1]])

LAYERS: list[tuple[str, dict[str, Any], Any]] = [
    ("GroupNormalization", {"groups": 4}, _IMAGES),
    ("GroupNormalization", {"groups": 4, "strided_channel_grouping": False, "gamma_initializer": "ones"}, _IMAGES),
    ("InstanceNormalization", {}, _IMAGES),
    ("LayerNormalization", {"axis": [1, -1]}, _IMAGES),
    ("Embedding", {"input_dim": 4, "output_dim": 2, "embeddings_initializer": "ones"}, _WORDS),
    (
        "SerialDense",
        {
            "units": 4,
            "serialization_factor": 2,
            "serialization_dimension": "kernel_rows",
            "kernel_initializer": "ones",
        },
        _IMAGES,
    ),
    ("Dropout", {"rate": 0.5, "seed": [1, 2]}, _IMAGES),
    ("RecomputationCheckpoint", {}, _IMAGES),
    ("AssumeEqualAcrossReplicas", {}, _IMAGES),
]


@pytest.mark.parametrize(("name", "arguments", "inputs"), LAYERS, ids=[f"{row[0]}-{len(row[1])}" for row in LAYERS])
def test_layers_are_keras_2_ones_with_the_values_of_those_for_keras_3(
    name: str, arguments: dict[str, Any], inputs: Any
) -> None:
    layer = getattr(of_keras_2.layers, name)(**arguments)
    assert isinstance(layer, keras_2.layers.Layer) and not isinstance(layer, getattr(addons.layers, name))
    x = keras_2.Input(inputs.shape[1:], dtype=inputs.dtype)
    model = keras_2.Model(x, layer(x))
    wanted = getattr(addons.layers, name)(**arguments)(inputs)
    np.testing.assert_allclose(model(inputs), wanted, rtol=1e-6)
    again = type(layer).from_config(layer.get_config())
    np.testing.assert_allclose(again(inputs), wanted, rtol=1e-6)


def test_a_layer_of_layers_is_made_of_keras_2_ones() -> None:
    """Keras 2 gathers the weights of its own layers alone."""
    x = [np.ones((2, 3), "float32"), np.array([3, 2]), np.ones((2, 3), "float32"), np.array([3, 2])]
    for each in (of_keras_2, addons):
        layer = each.layers.EffectiveTransformer(4, 2, attention_dropout_prob=0.1, output_dropout_prob=0.1)
        layer(x)
        assert len(layer.trainable_weights) == 10
        query, key, value = (weight.numpy() for weight in layer.trainable_weights if tuple(weight.shape) == (1, 1))
        assert not np.array_equal(query, key) and not np.array_equal(key, value)


def test_models_with_addons_are_loaded(tmp_path: Path) -> None:
    optimizers = of_keras_2.optimizers
    for optimizer in (tfa.AdamW(1e-4), optimizers.AdamIpuOptimizer(0.1), optimizers.SGDIpuOptimizer(0.1)):
        model = keras_2.Sequential([keras_2.layers.Dense(2, input_shape=(3,))])
        model.compile(optimizer, "mse")
        model.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
        model.save(tmp_path / "model.keras")
        again = keras_2.models.load_model(tmp_path / "model.keras")
        assert type(again.optimizer) is type(optimizer)


def test_variables_that_decay_where_a_loss_is_minimised() -> None:
    weight, bias = tf.Variable([1.0]), tf.Variable([1.0])
    decay = keras_2.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    optimizer = tfa.SGDW(decay, learning_rate=0.0)
    optimizer = tfa.SGDW.from_config(optimizer.get_config())
    optimizer.minimize(lambda: weight + bias, [weight, bias], decay_var_list=[weight])
    assert (weight.numpy(), bias.numpy()) == ([0.5], [1.0])


_LAMB: dict[str, Any] = {"learning_rate": 0.1, "weight_decay_rate": 0.01}
OPTIMIZERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "Adam": (
        lambda: of_keras_2.optimizers.AdamIpuOptimizer(0.1, amsgrad=True, m_dtype="float16"),
        lambda: addons.optimizers.AdamIpuOptimizer(0.1, amsgrad=True, m_dtype="float16"),
    ),
    "Adam, decay": (
        lambda: of_keras_2.optimizers.AdamIpuOptimizer(tf.constant(0.1), decay=0.5, debiasing=False),
        lambda: addons.optimizers.AdamIpuOptimizer(lr=0.1, decay=0.5, debiasing=False),
    ),
    "LAMB": (
        lambda: of_keras_2.optimizers.LAMBIpuOptimizer(**_LAMB, weight_norm_clip=1.0),
        lambda: addons.optimizers.LAMBIpuOptimizer(**_LAMB, weight_norm_clip=1.0),
    ),
    "LAMB, excluding": (
        lambda: of_keras_2.optimizers.LAMBIpuOptimizer(**_LAMB, exclude_from_weight_decay=["weight"]),
        lambda: addons.optimizers.LAMBIpuOptimizer(**_LAMB, exclude_from_weight_decay=["weight"]),
    ),
    "SGD": (
        lambda: of_keras_2.optimizers.SGDIpuOptimizer(0.1, momentum=0.9, nesterov=True, momentum_accum_dtype="float16"),
        lambda: addons.optimizers.SGDIpuOptimizer(0.1, momentum=0.9, nesterov=True, momentum_accum_dtype="float16"),
    ),
    "SGDW": (
        lambda: tfa.SGDW(
            weight_decay=keras_2.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5), learning_rate=0.1, momentum=0.9
        ),
        lambda: tfa_of_keras_3.SGDW(
            weight_decay=keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5), learning_rate=0.1, momentum=0.9
        ),
    ),
    "extended": (
        lambda: tfa.extend_with_decoupled_weight_decay(keras_2.optimizers.legacy.SGD)(0.1, learning_rate=0.1),
        lambda: tfa_of_keras_3.SGDW(weight_decay=0.1, learning_rate=0.1),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_update_as_those_for_keras_3(name: str) -> None:
    found = []
    for make in OPTIMIZERS[name]:
        optimizer, weight = make(), tf.Variable([3.0, -1.0, 0.5], name="weight")
        for gradient in ([1.0, -2.0, 0.25], [0.5, 0.0, -4.0]):
            optimizer.apply_gradients([(tf.constant(gradient), weight)])
        found.append(weight.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=2e-4 if "float16" in str(optimizer.get_config()) else 1e-5)
    assert optimizer.get_config() and not np.allclose(found[0], [3.0, -1.0, 0.5])


def test_rows_of_an_embedding_and_what_does_not_decay() -> None:
    table = tf.Variable([[1.0], [2.0]], name="table")
    optimizer = tfa.SGDW(0.5, learning_rate=1.0)
    rows = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([1]), tf.constant([2, 1]))
    optimizer.apply_gradients([(rows, table)], decay_var_list=[])
    np.testing.assert_array_equal(table, [[1.0], [1.0]])
    optimizer.apply_gradients([(rows, table)])
    np.testing.assert_array_equal(table, [[0.5], [-0.5]])
    of_keras_2.optimizers.SGDIpuOptimizer(1.0).apply_gradients([(rows, table)])
    np.testing.assert_array_equal(table, [[0.5], [-1.5]])


_PROGRAM = """
import keras, keras.utils, tensorflow as tf, tensorflow_addons as tfa, tf_keras
import keras.layers as layers
from keras import backend, ipu
from keras.losses import LossFunctionWrapper
from keras.engine import keras_tensor
from keras.engine.input_spec import InputSpec
from keras.layers.core import TFOpLambda
from keras.optimizer_v2 import gradient_descent
from tensorflow.keras.optimizers import RMSprop
from tensorflow.python.keras.applications import resnet
from ipu_tensorflow_addons.keras.layers import GroupNormalization

assert keras.Model is tf_keras.Model and layers.Dense is tf.keras.layers.Dense and backend is tf.keras.backend
assert issubclass(tf.keras.losses.MeanSquaredError, LossFunctionWrapper) and ipu is tf.keras.ipu
try:
    from keras.losses import Absent
except ImportError as error:
    assert "Absent" in str(error)
import library
assert library.keras.version().startswith("3.") and library.keras is not tf_keras
assert InputSpec is tf.keras.layers.InputSpec and isinstance(tf.keras.Input(2), keras_tensor.KerasTensor)
assert isinstance((tf.keras.Input(2) + 1.0)._keras_history.layer, TFOpLambda)
older = tf.keras.optimizers.legacy
assert gradient_descent.SGD is tf.keras.optimizers.SGD is tf_keras.optimizers.SGD is older.SGD
assert RMSprop is older.RMSprop
assert issubclass(tfa.optimizers.SGDW, older.SGD) and issubclass(GroupNormalization, tf.keras.layers.Layer)
assert resnet.ResNet50.__module__.startswith("tf_keras")  # `ResNet` is in test_tensorflow_2_6.py

class Fixed(tf.keras.mixed_precision.LossScaleOptimizer):
    def __init__(self, inner, scale):
        super().__init__(inner, dynamic=False, initial_scale=scale)

    def get_unscaled_gradients(self, grads):
        return [3.0 * grad for grad in super().get_unscaled_gradients(grads)]

fixed, weight = Fixed(older.SGD(1.0), 4.0), tf.Variable(10.0)
assert isinstance(fixed, tf.keras.mixed_precision.LossScaleOptimizer) and isinstance(fixed, older.Optimizer)
assert float(fixed.get_scaled_loss(tf.constant(2.0))) == 8.0
fixed.apply_gradients([(fixed.get_unscaled_gradients([tf.constant(8.0)])[0], weight)])
assert weight.numpy() == 4.0
newer = tf.keras.mixed_precision.LossScaleOptimizer(tf_keras.src.optimizers.sgd.SGD(1.0))
assert isinstance(newer, tf.keras.mixed_precision.LossScaleOptimizer)
print("Keras 2 itself")
"""


def test_names_lead_to_keras_2_itself_where_it_is_asked_for(tmp_path: Path) -> None:
    for name, text in (("program/program.py", _PROGRAM), ("libraries/library.py", "import keras\n")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    environment = {**os.environ, "TF_USE_LEGACY_KERAS": "1", "PYTHONPATH": f"{ROOT}:{tmp_path / 'libraries'}"}
    command = [sys.executable, "-m", "ipu_tf", "program.py"]
    ran = subprocess.run(
        command, cwd=tmp_path / "program", env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stdout.strip() == "Keras 2 itself", ran.stderr[-3000:]


def test_every_name_that_leads_to_keras_2_can_be_imported(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        f"import importlib\nfor name in {[*KERAS_2_ITSELF]}:\n    importlib.import_module(name)\nprint('all')"
    )
    environment = dict(os.environ, PYTHONPATH=str(ROOT), TF_CPP_MIN_LOG_LEVEL="3", TF_USE_LEGACY_KERAS="1")
    command = [sys.executable, "-m", "ipu_tf", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("all\n"), done.stderr
