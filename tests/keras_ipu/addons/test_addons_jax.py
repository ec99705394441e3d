"""Optimizers and layers with Keras's JAX backend, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = """
import json
import keras
import numpy as np
from keras_ipu.addons import layers
from keras_ipu.addons.optimizers import AdamIpuOptimizer, LAMBIpuOptimizer, SGDIpuOptimizer
from keras_ipu.optimizers import (
    ALSGradientAccumulationOptimizer, ALSOptimizer, ALSOptimizerAdam, CrossReplicaOptimizer,
    GradientAccumulationOptimizer, MapGradientOptimizer,
)

assert keras.backend.backend() == "jax"
rng = np.random.default_rng(0)
x, y = rng.normal(size=(12, 5, 4)).astype("float32"), rng.normal(size=(12, 2)).astype("float32")


def model(*stack):
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((5, 4)), *stack, keras.layers.Flatten(), keras.layers.Dense(2)])


def fitted(optimizer, batch):
    made = model()
    made.compile(optimizer, "mse")
    made.fit(x, y, batch_size=batch, epochs=2, shuffle=False, verbose=0)
    return made.get_weights()[0].tolist()


def sgd():
    return keras.optimizers.SGD(0.1, momentum=0.5)


stock = {12: fitted(sgd(), 12), 3: fitted(sgd(), 3), "adam": fitted(keras.optimizers.Adam(0.1), 3)}
als = ALSOptimizer(sgd(), update_frequency=1)
weights = {
    "accumulated": (fitted(GradientAccumulationOptimizer(sgd(), 4, reduction_method="MEAN"), 3), stock[12]),
    "als": (fitted(als, 3), stock[3]),
    "als adam": (fitted(ALSOptimizerAdam(0.1, update_frequency=1), 3), stock["adam"]),
    "als accumulated": (fitted(ALSGradientAccumulationOptimizer(ALSOptimizer(sgd()), 4, reduction_method="MEAN"), 3),
                        stock[12]),
    "mapped": (fitted(MapGradientOptimizer(CrossReplicaOptimizer(sgd()), lambda grad, _: grad), 3), stock[3]),
    "sgd": (fitted(SGDIpuOptimizer(0.1, 0.5), 3), stock[3]),
    "adam": (fitted(AdamIpuOptimizer(0.1), 3), stock["adam"]),
}
assert np.isfinite(fitted(LAMBIpuOptimizer(0.1), 3)).all()
assert float(als.loss_scaling_factor) == 2.0**8

made = model(
    layers.LSTM(6, return_sequences=True, dropout=0.5), layers.GRU(6, return_sequences=True), layers.GroupNorm(),
    layers.InstanceNorm(), layers.LayerNorm(), layers.SerialDense(4, 2, "kernel_rows"), layers.Dropout(0.5),
    layers.RecomputationCheckpoint(), layers.AssumeEqualAcrossReplicas(),
)
made.compile("sgd", "mse")
losses = made.fit(x, y, batch_size=12, epochs=2, verbose=0).history["loss"]
table = layers.Embedding(3, 2, "ones")(np.zeros((1, 2), "int32"))
output, context = layers.EffectiveTransformer(2, 8)([x[:, :, 0], np.ones(12, "int32")] * 2)
refused, refusals = {
    "ctc": lambda: layers.CTCInferenceLayer()(x[:1], np.ones(1, "int32")),
    "ctc predictions": lambda: layers.CTCPredictionsLayer()(x[:1], np.ones(1, "int32")),
    "f8": lambda: layers.ConvertToF8()(x[0], np.zeros((), "uint8")),
    "from f8": lambda: layers.ConvertFromF8()([x[0], np.zeros((), "uint8")]),
    "minimize": lambda: als.minimize(lambda: 1.0, []),
    "get_gradients": lambda: als.get_gradients(1.0, []),
}, {}
for name, call in refused.items():
    try:
        call()
    except NotImplementedError as error:
        refusals[name] = str(error)
shapes = {"table": table.shape, "output": output.shape}
print(json.dumps({"weights": weights, "losses": losses, "refusals": refusals, **shapes}))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    """Output of the program."""
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


NAMES = ("accumulated", "als", "als adam", "als accumulated", "mapped", "sgd", "adam")


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_stock_optimizers(found: dict[str, dict[str, list[np.ndarray]]], name: str) -> None:
    ours, stock = found["weights"][name]
    np.testing.assert_allclose(ours, stock, rtol=1e-3, atol=1e-5)


def test_layers_train(found: dict[str, list[float]]) -> None:
    assert np.isfinite(found["losses"]).all()
    assert (found["table"], found["output"]) == ([1, 2, 2], [12, 2])


REFUSALS = {
    "ctc": "CTCInferenceLayer computes with TensorFlow. Received: Keras's jax backend. Set KERAS_BACKEND=tensorflow.",
    "ctc predictions": "CTCPredictionsLayer computes with TensorFlow. Received: Keras's jax backend.",
    "f8": "ConvertToF8 computes with TensorFlow. Received: Keras's jax backend.",
    "from f8": "ConvertFromF8 computes with TensorFlow. Received: Keras's jax backend.",
    "minimize": "`ALSOptimizer.minimize` differentiates with TensorFlow. Received: Keras's jax backend. Use `fit`,",
    "get_gradients": "`ALSOptimizer.get_gradients` differentiates with TensorFlow. Received: Keras's jax backend.",
}


@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_what_needs_tensorflow_says_so(found: dict[str, dict[str, str]], name: str) -> None:
    assert REFUSALS[name] in found["refusals"][name]
