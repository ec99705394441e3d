"""Tests of the add-ons' and the IPU's optimizers and layers with KERAS_BACKEND=jax, as stock Keras runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

from keras_ipu.addons import layers
from keras_ipu.addons.optimizers import AdamIpuOptimizer, LAMBIpuOptimizer, SGDIpuOptimizer
from keras_ipu.optimizers import (
    ALSGradientAccumulationOptimizer,
    ALSOptimizer,
    ALSOptimizerAdam,
    CrossReplicaOptimizer,
    GradientAccumulationOptimizer,
    MapGradientOptimizer,
)

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 5, 4)).astype("float32"), RNG.normal(size=(12, 2)).astype("float32")


def model(*stack: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    return keras.Sequential([keras.Input((5, 4)), *stack, keras.layers.Flatten(), keras.layers.Dense(2)])


def fitted(optimizer: keras.optimizers.Optimizer, batch: int) -> np.ndarray:
    """The kernel after two epochs."""
    made = model()
    made.compile(optimizer, "mse")
    made.fit(X, Y, batch_size=batch, epochs=2, shuffle=False, verbose=0)
    return np.asarray(made.get_weights()[0])


def sgd() -> keras.optimizers.Optimizer:
    return keras.optimizers.SGD(0.1, momentum=0.5)


def adam() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.1)


Make = Callable[[], Any]
OPTIMIZERS: dict[str, tuple[Make, Make, int]] = {
    "accumulated": (lambda: GradientAccumulationOptimizer(sgd(), 4, reduction_method="MEAN"), sgd, 12),
    "als": (lambda: ALSOptimizer(sgd(), update_frequency=1), sgd, 3),
    "als adam": (lambda: ALSOptimizerAdam(0.1, update_frequency=1), adam, 3),
    "als accumulated": (
        lambda: ALSGradientAccumulationOptimizer(ALSOptimizer(sgd()), 4, reduction_method="MEAN"),
        sgd,
        12,
    ),
    "mapped": (lambda: MapGradientOptimizer(CrossReplicaOptimizer(sgd()), lambda grad, _: grad), sgd, 3),
    "sgd": (lambda: SGDIpuOptimizer(0.1, 0.5), sgd, 3),
    "adam": (lambda: AdamIpuOptimizer(0.1), adam, 3),
}
"""An optimizer, the stock one with whose weights it ends, and that one's batch; the optimizer's own is 3."""


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_are_those_of_stock_optimizers(name: str) -> None:
    ours, stock, batch = OPTIMIZERS[name]
    np.testing.assert_allclose(fitted(ours(), 3), fitted(stock(), batch), rtol=1e-3, atol=1e-5)


def test_lamb_trains() -> None:
    assert np.isfinite(fitted(LAMBIpuOptimizer(0.1), 3)).all()


def test_the_loss_scaling_factor_is_doubled_at_each_update() -> None:
    als = ALSOptimizer(sgd(), update_frequency=1)
    fitted(als, 3)
    assert float(als.loss_scaling_factor) == 2.0**8


def test_layers_train() -> None:
    made = model(
        layers.LSTM(6, return_sequences=True, dropout=0.5),
        layers.GRU(6, return_sequences=True),
        layers.GroupNorm(),
        layers.InstanceNorm(),
        layers.LayerNorm(),
        layers.SerialDense(4, 2, "kernel_rows"),
        layers.Dropout(0.5),
        layers.RecomputationCheckpoint(),
        layers.AssumeEqualAcrossReplicas(),
    )
    made.compile("sgd", "mse")
    assert np.isfinite(made.fit(X, Y, batch_size=12, epochs=2, verbose=0).history["loss"]).all()


def test_layers_have_outputs_of_the_shape() -> None:
    assert layers.Embedding(3, 2, "ones")(np.zeros((1, 2), "int32")).shape == (1, 2, 2)
    output, _ = layers.EffectiveTransformer(2, 8)([X[:, :, 0], np.ones(12, "int32")] * 2)
    assert output.shape == (12, 2)


COMPUTES, DIFFERENTIATES = "computes with TensorFlow", "differentiates with TensorFlow"
REFUSED: dict[str, tuple[Make, str]] = {
    "ctc": (
        lambda: layers.CTCInferenceLayer()(X[:1], np.ones(1, "int32")),
        f"CTCInferenceLayer {COMPUTES}. Received: Keras's jax backend. Set KERAS_BACKEND=tensorflow.",
    ),
    "ctc predictions": (
        lambda: layers.CTCPredictionsLayer()(X[:1], np.ones(1, "int32")),
        f"CTCPredictionsLayer {COMPUTES}. Received: Keras's jax backend.",
    ),
    "f8": (
        lambda: layers.ConvertToF8()(X[0], np.zeros((), "uint8")),
        f"ConvertToF8 {COMPUTES}. Received: Keras's jax backend.",
    ),
    "from f8": (
        lambda: layers.ConvertFromF8()([X[0], np.zeros((), "uint8")]),
        f"ConvertFromF8 {COMPUTES}. Received: Keras's jax backend.",
    ),
    "minimize": (
        lambda: ALSOptimizer(sgd()).minimize(lambda: 1.0, []),
        f"`ALSOptimizer.minimize` {DIFFERENTIATES}. Received: Keras's jax backend. Use `fit`,",
    ),
    "get_gradients": (
        lambda: ALSOptimizer(sgd()).get_gradients(1.0, []),
        f"`ALSOptimizer.get_gradients` {DIFFERENTIATES}. Received: Keras's jax backend.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_tensorflow_says_so(name: str) -> None:
    call, text = REFUSED[name]
    with pytest.raises(NotImplementedError) as refused:
        call()
    assert text in str(refused.value)
