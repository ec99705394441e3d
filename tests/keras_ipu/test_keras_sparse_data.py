"""Sparse data in fit, evaluate and predict is computed as stock Keras does; ragged data is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import scipy.sparse  # type: ignore[import-untyped]
import tensorflow as tf

from tests.helpers.device_counts import device_work
from tests.helpers.keras_parity import TIGHT, numbers
from tests.helpers.one_ipu import strategy

__all__ = ["strategy"]

BATCH = 8
X = np.maximum(numbers(16, 6), 0)
Y = numbers(16, 1)

DATA: dict[str, Callable[[], Any]] = {
    "scipy coo": lambda: scipy.sparse.coo_matrix(X),
    "scipy csr": lambda: scipy.sparse.csr_matrix(X),
    "tf.SparseTensor": lambda: tf.sparse.from_dense(X),
}


def _trained(data: Callable[[], Any], declared: bool) -> list[Any]:
    inputs = keras.Input((6,), sparse=declared)
    kernel = keras.initializers.RandomNormal(seed=1)
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer=kernel)(inputs))
    model.compile("sgd", "mse")
    seen = model.fit(data(), Y, BATCH, verbose=0, shuffle=False, validation_data=(data(), Y)).history
    return [seen["loss"], seen["val_loss"], model.evaluate(data(), Y, BATCH, verbose=0), model.predict(data(), BATCH)]


@pytest.mark.parametrize("declared", [False, True], ids=["dense input", "sparse input"])
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_sparse_data_is_computed_as_stock_keras_does(strategy: Any, data: Callable[[], Any], declared: bool) -> None:
    with strategy.scope(), device_work() as work:
        ours = _trained(data, declared)
    assert work.counts.steps == 8
    for got, wanted in zip(ours, _trained(data, declared), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=TIGHT, atol=TIGHT)


def test_datasets_of_sparse_tensors(strategy: Any) -> None:
    def predicted() -> np.ndarray:
        kernel = keras.initializers.RandomNormal(seed=1)
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, kernel_initializer=kernel)])
        data = tf.data.Dataset.from_tensor_slices(tf.sparse.from_dense(X)).batch(BATCH, drop_remainder=True)
        return model.predict(data, verbose=0)

    with strategy.scope(), device_work() as work:
        ours = predicted()
    assert work.counts.steps == 2
    np.testing.assert_allclose(ours, predicted(), rtol=TIGHT, atol=TIGHT)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="Keras on JAX pads ragged data itself")
def test_ragged_data_is_refused(strategy: Any) -> None:
    ragged = tf.ragged.constant([[1.0, 2.0], [3.0]])
    with strategy.scope():
        model = keras.Sequential([keras.Input((None,)), keras.layers.Activation("relu")])
        with pytest.raises(ValueError, match=r"Received: a tf.RaggedTensor of shape \(2, None\). Pass `x.to_tensor"):
            model.predict(ragged, verbose=0)
        model.predict(ragged.to_tensor(), batch_size=2, verbose=0)
